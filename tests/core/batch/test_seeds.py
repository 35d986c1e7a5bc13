"""Seeds of requests that bring none."""

from deepinfer_core.batch.seeds import seed_of_request


def test_a_seed_is_the_same_in_every_version() -> None:
    # BLAKE2b with 8 bytes of digest under an 8-byte key of zeros, little endian: files that were
    # begun with one version go on with the next.
    assert seed_of_request("a", None) == 4180199910021036473


def test_a_seed_depends_on_name_and_engine_seed_alone() -> None:
    seeds = {seed_of_request(name, seed) for name in ("a", "b", "") for seed in (0, 1, 2**64 - 1)}
    assert len(seeds) == 9
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert seed_of_request("a", None) == seed_of_request("a", 0)


def test_half_a_surrogate_pair_has_a_seed() -> None:
    assert seed_of_request("\ud800", None) != seed_of_request("\ud801", None)
