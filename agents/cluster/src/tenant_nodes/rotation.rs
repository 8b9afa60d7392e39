//! Which of many items a poll takes when it has time for a few. Pure.

/// The items of `all` that a poll takes after `turn` earlier polls: at most `most`, each time the next ones. With each, how many polls took it
/// before. The order rotates, so an item that uses up the time of a poll is not always before the others.
pub(super) fn batch<T>(all: &[T], most: usize, turn: usize) -> Vec<(&T, usize)> {
    let (first, count) = if all.len() > most {
        (turn.wrapping_mul(most), most)
    } else {
        (turn.wrapping_mul(all.len()), all.len())
    };
    let Some(before) = first.checked_div(all.len()) else {
        return Vec::new();
    };
    let places = (0..count).map(|nth| first.wrapping_add(nth));
    let taken = places.filter_map(|place| Some((all.get(place % all.len())?, place / all.len())));
    let mut taken: Vec<_> = taken.collect();
    taken.rotate_left(before.wrapping_add(turn / all.len()) % count);
    taken
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn everything_is_taken_in_its_turn() {
        assert_eq!(batch::<u8>(&[], 8, 5), []);
        assert_eq!(batch(&['a', 'b'], 8, 5), [(&'b', 5), (&'a', 5)]);
        assert_eq!(batch(&['a', 'b', 'c'], 2, 1), [(&'c', 0), (&'a', 1)]);
        assert_eq!(batch(&['a', 'b', 'c'], 2, 2), [(&'c', 1), (&'b', 1)]);
        for (count, most) in [(20, 8), (16, 8), (51, 50), (2_000, 8), (9, 8), (8, 8), (3, 8)] {
            let all: Vec<usize> = (0..count).collect();
            let polls = count.div_ceil(most);
            for from in 0..polls {
                let mut times: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
                for turn in from..from + 3 * polls {
                    let now = batch(&all, most, turn);
                    assert_eq!(now.len(), most.min(count));
                    for (one, before) in now {
                        times.entry(*one).or_default().push(before);
                    }
                }
                let is_next = |pair: &[usize]| pair[1] == pair[0] + 1;
                let all = times
                    .values()
                    .all(|times| times.len() >= 3 && times.windows(2).all(is_next));
                assert!(times.len() == count && all, "{count} {most}: {times:?}");
            }
        }
        // Polls are counted without end.
        assert_eq!(batch(&[0; 9], 8, usize::MAX).len(), 8);
    }

    #[test]
    fn each_comes_first_at_times() {
        for count in 1..60 {
            let all: Vec<usize> = (0..count).collect();
            let mut first: Vec<usize> = (0..2_000).map(|turn| *batch(&all, 8, turn)[0].0).collect();
            first.sort_unstable();
            first.dedup();
            assert_eq!(first, all);
        }
    }
}
