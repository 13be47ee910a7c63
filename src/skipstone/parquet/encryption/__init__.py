"""Modular encryption of Parquet: modules and their AAD, ciphers, keys, key material.

``modules`` is the layout of an encrypted module, without keys; ``ciphers`` is AES over
``cryptography``; ``decryption`` and ``encryption`` are what a user passes; ``key_material`` is how
key tools wrap keys through a KMS; ``file_decryptor`` and ``file_encryptor`` combine them for one
file; ``open_footer`` opens a footer; ``description`` is what a file shows without a key. Source:
Encryption.md of parquet-format.
"""
