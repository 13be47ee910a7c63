"""The S3 server."""

from tests.s3 import s3_server

__all__ = ["s3_server"]
