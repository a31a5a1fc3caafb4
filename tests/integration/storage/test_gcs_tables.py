"""Tables on GCS behind a metastore, judged by Hive: cycles, streaming ingest and compaction.

The store is gcp-storage-emulator, a double of Google's; Hive and its metastore reach it by
Google's connector.
"""

from __future__ import annotations

import pytest

from tests.support.object_stores import object_store
from tests.support.store_site import check_cycles, open_site

pytestmark = [
    pytest.mark.slow,
    # The driver sends blocks of megabytes in one piece.
    pytest.mark.filterwarnings("ignore:Sending a large body directly"),
]


def test_tables_on_gcs() -> None:
    with object_store("gs") as store, open_site(store) as site:
        check_cycles(site)
