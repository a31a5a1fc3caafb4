"""Logs the JVM of a job's driver in to Kerberos, so that Spark's own readers can open files of HDFS.

Files are copied and digested in Python, where each client logs in by itself. Rows are read by Spark, in the
JVM. Hadoop's ``UserGroupInformation`` is public, and the same in all versions of Spark that the jobs know.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError

from airflow_hive_federation.errors import (
    ConfigurationError,
    SparkEnvironmentError,
    StoragePermissionError,
)
from airflow_hive_federation.storage.hadoop_access import (
    AUTHENTICATION,
    KERBEROS,
    HadoopAccess,
    KerberosLogin,
)
from airflow_hive_federation.storage.options import StorageOptions

if TYPE_CHECKING:
    from airflow_hive_federation.tables.spark_internals import JavaObject


#: The setting without which Hadoop's client refuses a NameNode, whose principal it would not know.
_NAME_NODE = "dfs.namenode.kerberos.principal"


def log_in(context: Any, options: StorageOptions | None) -> None:
    """Log the driver's JVM in, if the storage options or the Spark properties have a login of Kerberos.

    The login is that of the Spark properties ``spark.kerberos.principal`` and ``spark.kerberos.keytab``, else
    that of the storage options, else the ticket in the cache of ``KRB5CCNAME``. A JVM that spark-submit has
    logged in, or that has delegation tokens, keeps its login.

    :param context: the SparkContext.
    :raises ConfigurationError: the stores have different logins or settings, or the NameNode's principal is
        missing.
    :raises SparkEnvironmentError: Spark's Java lacks Kerberos for SASL.
    :raises StoragePermissionError: Kerberos refuses the login, or the cache holds no valid ticket.
    """
    access, login = HadoopAccess.of(options), _login_of_spark(context)
    if not access.logins and login is None:
        # If Hadoop's files ask for Kerberos, its client takes the ticket by itself when it opens a file.
        return
    configuration = context._jsc.hadoopConfiguration()
    if access.logins:
        for name, value in {AUTHENTICATION: KERBEROS, **access.common_settings()}.items():
            configuration.set(name, value)
    if (configuration.get(AUTHENTICATION) or "").lower() != KERBEROS:
        return
    if not (configuration.get(_NAME_NODE) or configuration.get(f"{_NAME_NODE}.pattern")):
        raise ConfigurationError(
            f"Spark's JVM does not know the NameNode's principal: {_NAME_NODE} is not set.",
            remedy=f'Add "{_NAME_NODE}": "hdfs/_HOST@<realm>" to the storage options, as the NameNode\'s '
            "hdfs-site.xml has it, or set HADOOP_CONF_DIR.",
            setting=_NAME_NODE,
        )
    java = partial(JavaClass, gateway_client=context._gateway._gateway_client)
    _check_mechanism(java)
    users = java("org.apache.hadoop.security.UserGroupInformation")
    login = login or access.common_login()
    try:
        users.setConfiguration(configuration)
        if login.keytab:
            _by_keytab(users, login)
        else:
            _by_ticket(users, login)
    except Py4JJavaError as error:
        raise _refused(login, _reason(error)) from error


def _login_of_spark(context: Any) -> KerberosLogin | None:
    properties = context.getConf()
    keytab = properties.get("spark.kerberos.keytab") or ""
    principal = properties.get("spark.kerberos.principal") or ""
    return KerberosLogin(principal=principal, keytab=keytab) if keytab and principal else None


def _by_keytab(users: JavaObject, login: KerberosLogin) -> None:
    user = users.getLoginUser()
    if not (user.isFromKeytab() and user.getUserName() == login.principal):
        users.loginUserFromKeytab(login.principal, login.keytab)


def _by_ticket(users: JavaObject, login: KerberosLogin) -> None:
    user = users.getLoginUser()
    if user.hasKerberosCredentials() or user.getTokens().size():
        return
    # The JVM's user until now is that of its process: Kerberos was switched on after its first use.
    users.loginUserFromSubject(None)
    if not users.getLoginUser().hasKerberosCredentials():
        raise _refused(login, "the cache holds no valid ticket")


def _check_mechanism(java: JavaObject) -> None:
    factories = java("javax.security.sasl.Sasl").getSaslClientFactories()
    while factories.hasMoreElements():
        if "GSSAPI" in factories.nextElement().getMechanismNames(None):
            return
    home = java("java.lang.System").getProperty("java.home")
    raise SparkEnvironmentError(
        f"The Java of Spark, in {home}, has no Kerberos for SASL: the module jdk.security.jgss is missing.",
        remedy="Set JAVA_HOME to a JDK or JRE 17 or 21 that lists it (java --list-modules).",
        package="jdk.security.jgss",
    )


def _refused(login: KerberosLogin, reason: str) -> StoragePermissionError:
    if login.keytab:
        described = f"{login.principal} with the keytab {login.keytab}"
        remedy = (
            "Compare the principal, its realm included, with those of the keytab (klist -kt), and check that "
            "the job's user may read the file."
        )
    else:
        described = f"the ticket in {login.cache or 'KRB5CCNAME'}"
        remedy = (
            "Run kinit, or let 'airflow kerberos' renew the ticket; or set kerberos_principal and "
            "kerberos_keytab. Java reads caches that are files, and no others."
        )
    return StoragePermissionError(
        f"Spark's JVM cannot log in to Kerberos by {described}: {reason}.",
        remedy=remedy,
        path="hdfs:",
        user=login.principal,
    )


def _reason(error: Py4JJavaError) -> str:
    causes = [line for line in str(error).splitlines() if "Exception: " in line]
    return (causes[-1] if causes else str(error.java_exception)).strip().rstrip(".")
