"""Is the first of a ranking always the thing with the smallest rank it was last given?"""

from deepinfer_core.stores.ranking import Ranking
from hypothesis import given
from hypothesis import strategies as st

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.just("discard"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_a_ranking_is_a_dictionary_searched_for_its_least(
    steps: list[tuple[str, int, int]],
) -> None:
    ranking: Ranking[int, int] = Ranking()
    plain: dict[int, int] = {}
    for verb, thing, rank in steps:
        least = min(plain.items(), key=lambda pair: (pair[1], pair[0]), default=None)
        assert ranking.first() == least
        if verb == "put":
            ranking.put(thing, rank)
            plain[thing] = rank
        elif verb == "discard":
            ranking.discard(thing)
            plain.pop(thing, None)
        else:
            assert ranking.pop() == least
            if least is not None:
                del plain[least[0]]
        assert len(ranking) == len(plain)


def test_ranks_that_change_often_do_not_pile_up() -> None:
    ranking: Ranking[str, int] = Ranking()
    for rank in range(10_000):
        ranking.put("a", rank)
        ranking.put("b", -rank)
    # Two things, and the most that may be outdated before they are thrown out.
    assert len(ranking._heap) <= 2 * 2 + 64
    assert ranking.pop() == ("b", -9_999)
    assert ranking.pop() == ("a", 9_999)
