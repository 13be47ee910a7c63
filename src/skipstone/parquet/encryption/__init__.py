"""Modular encryption of Parquet: modules and their AAD, keys, key material.

``modules`` is the layout of an encrypted module, and AES over ``cryptography``; ``decryption`` and
``encryption`` are what a user passes; ``key_material`` is how key tools wrap keys through a KMS;
``column_decryptor`` and ``file_decryptor`` combine them for one file; ``open_footer`` opens a
footer, and describes what a file shows without a key. Source: Encryption.md of parquet-format.
"""
