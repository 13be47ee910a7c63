"""Modular encryption of Parquet: modules and their AAD, ciphers, keys, key material.

``modules`` lays out an encrypted module and knows nothing of keys; ``ciphers`` is AES over
``cryptography``; ``keys`` is what a user passes, ``material`` how key tools wrap keys through a
KMS; ``file_decryptor`` joins them for one file; ``column_metadata`` fills a footer; ``description``
says what can be seen without a key. Source: Encryption.md of parquet-format.
"""
