"""Modular encryption of Parquet: modules and their AAD, keys, key material.

``modules`` is the layout of an encrypted module, and AES over ``cryptography``; ``decryption`` and
``encryption`` are what a user passes; ``key_material`` is how key tools wrap keys through a KMS;
``file_decryptor`` combines them for one file and its chunks; ``open_footer`` opens a
footer, and describes what a file shows without a key. Source: Encryption.md of parquet-format.
"""
