"""A store of S3 for metastores and Hive's SQL, and the jars by which they reach it (hadoop-aws).

It is S3Proxy, or the store at the URL in HIVE_FEDERATION_TESTS_S3.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_hive_federation.storage.filesystem import open_filesystem
from tests.support.plain_metastore import fetched
from tests.support.s3proxy import s3proxy

AWS_SDK = """
test software.amazon.awssdk:annotations:2.35.4@jar \
6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8 13758
test software.amazon.awssdk:apache-client:2.35.4@jar \
6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740 77013
test software.amazon.awssdk:arns:2.35.4@jar \
c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380 16323
test software.amazon.awssdk:auth:2.35.4@jar \
6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994 241952
test software.amazon.awssdk:aws-core:2.35.4@jar \
fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623 192161
test software.amazon.awssdk:aws-query-protocol:2.35.4@jar \
9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f 69369
test software.amazon.awssdk:aws-xml-protocol:2.35.4@jar \
4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d 102272
test software.amazon.awssdk:checksums:2.35.4@jar \
94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948 69585
test software.amazon.awssdk:checksums-spi:2.35.4@jar \
88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec 8044
test software.amazon.awssdk:crt-core:2.35.4@jar \
2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62 17774
test software.amazon.awssdk:endpoints-spi:2.35.4@jar \
ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00 13168
test software.amazon.eventstream:eventstream:1.0.1@jar \
0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822 30193
test software.amazon.awssdk:http-auth:2.35.4@jar \
3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491 17475
test software.amazon.awssdk:http-auth-aws:2.35.4@jar \
c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01 171754
test software.amazon.awssdk:http-auth-aws-eventstream:2.35.4@jar \
709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd 8705
test software.amazon.awssdk:http-auth-spi:2.35.4@jar \
4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c 48042
test software.amazon.awssdk:http-client-spi:2.35.4@jar \
728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb 91685
test software.amazon.awssdk:identity-spi:2.35.4@jar \
188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf 30963
test software.amazon.awssdk:json-utils:2.35.4@jar \
80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc 33225
test software.amazon.awssdk:metrics-spi:2.35.4@jar \
c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487 27262
test io.netty:netty-buffer:4.1.126.Final@jar \
d741726adcc76107553092d456d0da5837daad39919c8a40df15327d7fa3296d 352365
test io.netty:netty-codec:4.1.126.Final@jar \
8ebb8284cc76b26025d892ff8bc1a90cc4ae7492dae0e3794068cd8ebc452600 357372
test io.netty:netty-codec-http:4.1.126.Final@jar \
0a32369bbd7278f1066048fc0830f2a6df1f0f72de6ae7f5386976c4d2f6788f 681417
test io.netty:netty-codec-http2:4.1.126.Final@jar \
bb5eb960f552d9b90a98c8bc40e40b89316294c1dd1e67b2728ad047f2da3bbe 499672
test io.netty:netty-common:4.1.126.Final@jar \
ac2b777562723a94962ea30a30d968fa5678455141ede64100b9d0530426db9c 724201
test io.netty:netty-handler:4.1.126.Final@jar \
1846e8e770288aab3a203a16f78e2515ddba0bf9df1c26665ceffc38c9fc875b 579774
test software.amazon.awssdk:netty-nio-client:2.35.4@jar \
b82f8b33e5c85273a47da45ede884d7ccb31c9c2f69e6910a76c5c48fa1275dc 292688
test io.netty:netty-resolver:4.1.126.Final@jar \
c66be4ca4e37c263af785253449024b7ef150093257490c208bdc1d774e2c6d7 37904
test io.netty:netty-transport:4.1.126.Final@jar \
30065562b7708e88cdf7c3fd192be9083651be538676ba27c8631e255825f315 521518
test io.netty:netty-transport-classes-epoll:4.1.126.Final@jar \
d7e0684969dad68e224e4fbf3e8e0de6b5191b25d820f8d6ae05201c70b33654 147627
test io.netty:netty-transport-native-unix-common:4.1.126.Final@jar \
b6578df0ad9092f4e846d34976a5f887b067ebaa71307eb90653d3a1898c1f5f 44238
test software.amazon.awssdk:profiles:2.35.4@jar \
0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8 50524
test software.amazon.awssdk:protocol-core:2.35.4@jar \
f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5 44371
test org.reactivestreams:reactive-streams:1.0.4@jar \
f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28 11640
test software.amazon.awssdk:regions:2.35.4@jar \
77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca 962286
test software.amazon.awssdk:retries:2.35.4@jar \
f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469 66309
test software.amazon.awssdk:retries-spi:2.35.4@jar \
668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd 31487
test software.amazon.awssdk:s3:2.35.4@jar \
f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc 4084242
test software.amazon.awssdk:s3-transfer-manager:2.35.4@jar \
0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476 251117
test software.amazon.awssdk:sdk-core:2.35.4@jar \
fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4 1040729
test software.amazon.awssdk:sts:2.35.4@jar \
8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2 545150
test software.amazon.awssdk:third-party-jackson-core:2.35.4@jar \
32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea 535001
test software.amazon.awssdk:utils:2.35.4@jar \
642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8 241618
test software.amazon.awssdk:utils-lite:2.35.4@jar \
e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be 8798
"""
HIVES = """
test org.apache.hadoop:hadoop-aws:3.4.1@jar \
01334a07e179cae2b7e251f24857f11e3759108c9d6a79dcbe362a4295227da2 865554
"""
REGION = "us-east-1"
#: The variable with the URL of a store that runs; its user and password are the key and the secret.
RUNNING = "HIVE_FEDERATION_TESTS_S3"


@dataclass(frozen=True, kw_only=True)
class S3Store:
    """An S3 server with one user."""

    endpoint: str
    key: str
    secret: str = field(repr=False)
    scheme: str = "s3a"

    @property
    def options(self) -> dict[str, Any]:
        """Options of s3fs."""
        client = {"endpoint_url": self.endpoint, "region_name": REGION}
        return {"key": self.key, "secret": self.secret, "client_kwargs": client}

    @property
    def hadoop_settings(self) -> dict[str, str]:
        """Settings of hadoop-aws."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": REGION,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.access.key": self.key,
            "fs.s3a.secret.key": self.secret,
            "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }

    @property
    def jars(self) -> list[Path]:
        """The jars by which the embedded Hive reaches S3."""
        return fetched(AWS_SDK + HIVES)

    def uri(self, bucket: str) -> str:
        """Return the URI of a bucket."""
        return f"{self.scheme}://{bucket}"

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        filesystem, _ = open_filesystem(f"s3://{name}", self.options)
        filesystem.call_s3("create_bucket", Bucket=name)


@contextmanager
def s3_store(home: Path) -> Iterator[S3Store]:
    """Run S3Proxy, or use the store that runs.

    :param home: a directory for S3Proxy alone.
    """
    if running := os.environ.get(RUNNING):
        url = urlsplit(running)
        key, secret = unquote(url.username or ""), unquote(url.password or "")
        yield S3Store(endpoint=f"{url.scheme}://{url.hostname}:{url.port}", key=key, secret=secret)
        return
    key, secret = "a-key", "a-secret"
    with s3proxy(home, key=key, secret=secret) as endpoint:
        yield S3Store(endpoint=endpoint, key=key, secret=secret)
