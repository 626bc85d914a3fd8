"""What is generated is what its generator writes."""

from tools import generate_sync_admin


def test_the_sync_admin_is_generated_from_the_async_one() -> None:
    """If it fails: run .venv/bin/python tools/generate_sync_admin.py."""
    assert (generate_sync_admin.ADMIN / "sync.py").read_text() == generate_sync_admin.render()
