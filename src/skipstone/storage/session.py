"""The Spark session of this process, and the options of object stores by its configuration.

A table on ``s3a://``, ``abfss://`` or ``gs://`` is read by a client that sends many requests at
once, in the driver and in Spark's workers alike. Without options, these settings of Hadoop's
filesystems apply:

    S3A   fs.s3a.access.key, secret.key, session.token, endpoint, endpoint.region,
          connection.ssl.enabled; fs.s3a.bucket.NAME.* before fs.s3a.*
    ABFS  fs.azure.account.key, fs.azure.sas.fixed.token, fs.azure.account.oauth2.client.id,
          .client.secret and .client.endpoint; with the account behind the name before without it
    GCS   fs.gs.auth.service.account.json.keyfile, google.cloud.auth.service.account.json.keyfile

``Configuration.getPassword`` reads secrets, so those in Hadoop's credential providers are found. If
S3A has another provider of credentials and no keys, it is asked for the keys that it uses now. The
rest comes from the environment and the role of the machine, as without a session.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    #: the value of a setting, and whether it is a secret
    Setting = Callable[[str, bool], str | None]


_S3A: Final = {
    "access.key": ("access_key_id", True),
    "secret.key": ("secret_access_key", True),
    "session.token": ("session_token", True),
    "endpoint": ("endpoint", False),
    "endpoint.region": ("region", False),
}
_ABFS: Final = {
    "fs.azure.account.key": ("account_key", True),
    "fs.azure.sas.fixed.token": ("sas_token", True),
    "fs.azure.account.oauth2.client.id": ("client_id", True),
    "fs.azure.account.oauth2.client.secret": ("client_secret", True),
}
_TENANT: Final = re.compile(r"https://[^/]+/([^/]+)/oauth2/")
_GCS: Final = (
    "fs.gs.auth.service.account.json.keyfile",
    "google.cloud.auth.service.account.json.keyfile",
)
_PROVIDERS: Final = "fs.s3a.aws.credentials.provider"


def active_session() -> Any:
    """The classic Spark session of this process, ``None`` without one. Nothing is imported."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(pyspark, "SparkContext", None)
    if context is None or context._active_spark_context is None:
        return None
    if context._active_spark_context._jsc is None:
        return None
    sql = sys.modules.get("pyspark.sql")
    session = getattr(sql, "SparkSession", None)
    if session is None:
        return None
    found = session.getActiveSession()
    return session._instantiatedSession if found is None else found


def has_connect_session() -> bool:
    """Whether this process has a session of Spark Connect, which has no JVM here."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is None:
        return False
    session = connect.SparkSession
    try:
        return (session.getActiveSession() or session._default_session) is not None
    except Exception:  # another version of Spark keeps it elsewhere
        return False


def options_of_session(session: Any, path: str) -> dict[str, str]:
    """The options of the store of ``path`` (canonical) by the configuration of ``session``."""
    conf = session._jsparkSession.sessionState().newHadoopConf()

    def setting(name: str, secret: bool) -> str | None:
        if not secret:
            found = conf.get(name)
        else:
            # A text crosses in one call; an array of char would need a call for each element.
            value = conf.getPassword(name)
            strings = session.sparkContext._gateway.jvm.java.lang.String
            found = None if value is None else strings.valueOf(value)
        return str(found) if found else None

    found = options_of_hadoop(setting, path)
    scheme, _, rest = path.partition("://")
    if scheme == "s3" and "access_key_id" not in found and _has_providers(conf, rest):
        found |= _resolved(session, conf, rest.partition("/")[0])
    return found


def options_of_hadoop(setting: Setting, path: str) -> dict[str, str]:
    """The options of the store of ``path``; see the module."""
    scheme, _, rest = path.partition("://")
    authority = rest.partition("/")[0]
    if scheme == "s3":
        return _of_s3a(setting, authority)
    if scheme == "abfs":
        return _of_abfs(setting, authority.rpartition("@")[2])
    if scheme == "gs":
        keys = next(filter(None, (setting(name, False) for name in _GCS)), None)
        return {} if keys is None else {"service_account": keys}
    return {}


def _of_s3a(setting: Setting, bucket: str) -> dict[str, str]:
    def of(name: str, secret: bool = False) -> str | None:
        own = setting(f"fs.s3a.bucket.{bucket}.{name}", secret)
        return own or setting(f"fs.s3a.{name}", secret)

    options = {}
    for name, (option, secret) in _S3A.items():
        if value := of(name, secret):
            options[option] = value
    endpoint = options.get("endpoint")
    if endpoint in ("s3.amazonaws.com", "central"):  # the default, whatever the region
        del options["endpoint"]
    elif endpoint and "://" not in endpoint:
        secure = (of("connection.ssl.enabled") or "true").lower() != "false"
        options["endpoint"] = f"{'https' if secure else 'http'}://{endpoint}"
    return options


def _of_abfs(setting: Setting, account: str) -> dict[str, str]:
    def of(name: str, secret: bool) -> str | None:
        return setting(f"{name}.{account}", secret) or setting(name, secret)

    options = {}
    for name, (option, secret) in _ABFS.items():
        if value := of(name, secret):
            options[option] = value
    endpoint = of("fs.azure.account.oauth2.client.endpoint", True)
    if endpoint and (tenant := _TENANT.match(endpoint)):
        options["tenant_id"] = tenant[1]
    return options


def _has_providers(conf: Any, rest: str) -> bool:
    """Whether the user named providers of credentials; Hadoop's own default does not count."""
    bucket = rest.partition("/")[0]
    for name in (f"fs.s3a.bucket.{bucket}.aws.credentials.provider", _PROVIDERS):
        sources = conf.getPropertySources(name)
        if sources is not None and not str(sources[-1]).endswith("core-default.xml"):
            return True
    return False


def _resolved(session: Any, conf: Any, bucket: str) -> Mapping[str, str]:
    """The keys that the providers of S3A return now; none without S3A."""
    jvm = session.sparkContext._gateway.jvm
    try:
        files = jvm.org.apache.hadoop.fs.Path(f"s3a://{bucket}/").getFileSystem(conf)
        shared = files.getS3AInternals().shareCredentials("skipstone")
        try:
            found = shared.resolveCredentials()
        finally:
            shared.close()
        options = {
            "access_key_id": str(found.accessKeyId()),
            "secret_access_key": str(found.secretAccessKey()),
        }
        if str(found.getClass().getSimpleName()) == "AwsSessionCredentials":
            options["session_token"] = str(found.sessionToken())
    except Exception:  # the environment and the machine may have credentials
        return {}
    return options
