"""The product on S3, as far as tensorflow-io lets it."""

import pytest

from tests.servers.s3 import BUCKET
from tests.support.child import Child


@pytest.fixture(scope="module")
def child(s3):
    child = Child(s3.environment)
    yield child
    child.close()


def test_save_restore_list_verify_read(child):
    child.call("tests.stores.s3_product", "save_restore_list_verify_read", f"s3://{BUCKET}/product/dir")


def test_what_users_are_told(child):
    child.call("tests.stores.s3_product", "what_users_are_told", f"s3://{BUCKET}/told/dir")
