//! Whole histories of a region: people, agents and hosts do things at random, the scheduler decides after each or after
//! several, and a plain judge that shares no code with the decision checks each step.
//!
//! `SOAK` makes it so many times longer; `PROPTEST_RNG_SEED` repeats a run. A history that breaks a rule is shortened
//! before it is shown.

mod effects;
mod event;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod judge;
mod stages;
mod world;

use event::Event;
use proptest::test_runner::RngSeed;
use world::{Size, World};

/// Splitmix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Events, of which at most so many happen between two decisions.
    fn history(&mut self, longest: u64, together: u64) -> History {
        let length = 1 + self.next() % longest;
        let batch = |random: &mut Self| {
            let size = 1 + random.next() % together;
            (0..size).map(|_| Event::draw(random.next())).collect()
        };
        (0..length).map(|_| batch(self)).collect()
    }
}

/// What happens, and between which events the scheduler decides.
type History = Vec<Vec<Event>>;

fn one_by_one(events: &[Event]) -> History {
    events.iter().map(|event| vec![event.clone()]).collect()
}

fn play(size: Size, history: &[Vec<Event>]) -> Result<(), String> {
    let mut world = match size {
        Size::Small | Size::Crowded => World::new(size),
        Size::Large => World::placed(size)?,
    };
    for (index, events) in history.iter().enumerate() {
        world
            .happen(events)
            .map_err(|rule| format!("after events {index}, {events:?}: {rule}"))?;
    }
    Ok(())
}

/// The same history without the events that the broken rule does not need.
fn shortened(size: Size, mut history: History) -> History {
    let mut index = history.len();
    while index > 0 {
        index -= 1;
        let mut event = history[index].len();
        while event > 0 {
            event -= 1;
            let mut shorter = history.clone();
            shorter[index].remove(event);
            if shorter[index].is_empty() {
                shorter.remove(index);
            }
            if play(size, &shorter).is_err() {
                history = shorter;
                event = event.min(history.get(index).map_or(0, Vec::len));
                index = index.min(history.len());
            }
        }
    }
    history
}

/// `together`: at most so many events happen between two decisions.
fn judge(size: Size, histories: u32, [short, long]: [u64; 2], together: u64) -> Result<(), String> {
    let config = fixtures::runs::cases(histories);
    let RngSeed::Fixed(seed) = config.rng_seed else {
        unreachable!("cases() fixes the seed");
    };
    let mut random = Random(seed);
    let longest = if config.cases > histories { long } else { short };
    for number in 0..config.cases {
        let history = random.history(longest, together);
        if play(size, &history).is_err() {
            let history = shortened(size, history);
            let rule = play(size, &history).err().unwrap_or_default();
            return Err(format!("history {number}: {rule}\n{history:#?}"));
        }
    }
    Ok(())
}

#[test]
fn every_history_keeps_the_rules() {
    if let Err(rule) = judge(Size::Small, 1_500, [30, 60], 1) {
        panic!("{rule}");
    }
}

#[test]
fn every_history_of_a_large_role_keeps_the_rules() {
    if let Err(rule) = judge(Size::Large, 400, [40, 80], 1) {
        panic!("{rule}");
    }
}

#[test]
fn several_events_between_two_decisions_keep_the_rules() {
    for (size, histories) in [(Size::Small, 800), (Size::Large, 150)] {
        if let Err(rule) = judge(size, histories, [20, 40], 4) {
            panic!("{rule}");
        }
    }
}

#[test]
fn every_history_of_three_clusters_keeps_the_rules() {
    for together in [1, 4] {
        if let Err(rule) = judge(Size::Crowded, 300, [20, 40], together) {
            panic!("{rule}");
        }
    }
}

#[test]
fn a_pair_outlives_a_host_made_again_and_a_lost_ledger() {
    for which in 0..14 {
        let mut history = vec![Event::Bind(0); 5];
        history.extend([
            Event::Pause(which),
            Event::Move(which),
            Event::Vanish(which),
            Event::Restored(0),
            Event::LoseLedger,
        ]);
        assert_eq!(play(Size::Small, &one_by_one(&history)), Ok(()), "host {which}");
    }
}

#[test]
fn histories_that_broke_a_rule_keep_it_now() {
    // A new host in the rack that a help named was taken by the move of another role.
    let spoilt_by_a_move = [
        Event::Move(799),
        Event::Move(661),
        Event::Want(951, 735),
        Event::Want(952, 863),
        Event::Move(946),
        Event::Fail(580),
    ];
    // The replacement of a member failed while the member's own host was not in the inventory.
    let unseen = [
        Event::Want(4, 715),
        Event::Want(210, 17),
        Event::Vanish(271),
        Event::Pause(444),
        Event::Return(367),
        Event::Move(520),
        Event::Vanish(506),
        Event::Consume(992),
    ];
    // A claimed host whose move was withdrawn was taken for a replacement again when the ledger was rebuilt.
    let withdrawn = [
        Event::TopologyKey(166),
        Event::Move(676),
        Event::Vanish(141),
        Event::Vanish(461),
        Event::Consume(985),
        Event::Clear(1023),
        Event::Move(3),
        Event::Move(976),
        Event::LoseLedger,
    ];
    // A failed member without a host waited, and of two others the less pressing one was replaced.
    let less_pressing = [
        Event::Clear(539),
        Event::Want(241, 269),
        Event::Move(664),
        Event::Consume(732),
        Event::Vanish(822),
        Event::Fail(341),
        Event::Vanish(585),
        Event::Refuse(489),
    ];
    for history in [&spoilt_by_a_move[..], &unseen, &withdrawn, &less_pressing] {
        assert_eq!(play(Size::Small, &one_by_one(history)), Ok(()));
    }
    // Of a pair that was surplus the old member was asked to go, and when its replacement had gone, another one in its place.
    let asked_of_another = [
        Event::Fail(534),
        Event::Fail(1023),
        Event::Bind(251),
        Event::Move(301),
        Event::Bind(760),
        Event::Want(153, 142),
        Event::Return(790),
        Event::Vanish(1006),
        Event::Vanish(61),
        Event::Want(8, 970),
        Event::Bind(640),
        Event::Vanish(964),
        Event::Bind(162),
        Event::Consume(237),
        Event::Move(755),
        Event::TopologyKey(883),
        Event::Consume(766),
        Event::Want(199, 930),
        Event::Vanish(702),
        Event::Move(98),
        Event::TopologyKey(655),
    ];
    assert_eq!(play(Size::Large, &one_by_one(&asked_of_another)), Ok(()));
    // A help named the rack of a failed member for growth, since members of two roles had failed.
    let two_roles = [
        vec![Event::Want(298, 251)],
        vec![Event::Fail(519), Event::Outage(330)],
        vec![Event::Want(567, 921), Event::Outage(76)],
    ];
    assert_eq!(play(Size::Small, &two_roles), Ok(()));
}
