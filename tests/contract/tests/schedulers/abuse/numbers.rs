//! Values at the borders of what anything takes.

use rand::{Rng as _, rngs::StdRng};

/// No report moves a site above this number.
const MAX_REPORTED: u64 = scheduler::ledger::position::MAX_REPORTED;

fn one_of<T: Copy>(rng: &mut StdRng, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}

pub(crate) fn unsigned(rng: &mut StdRng) -> u64 {
    let borders = [
        0,
        1,
        7,
        MAX_REPORTED - 1,
        MAX_REPORTED,
        MAX_REPORTED + 1,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    one_of(rng, &borders)
}

pub(crate) fn signed(rng: &mut StdRng) -> i64 {
    one_of(rng, &[i64::MIN, -1, 0, 1, 2, 1 << 40, i64::MAX - 1, i64::MAX])
}

pub(crate) fn count(rng: &mut StdRng) -> u32 {
    one_of(rng, &[0, 1, 2, 3, 9, 1000, 1 << 31, u32::MAX - 1, u32::MAX])
}

pub(crate) fn page(rng: &mut StdRng) -> i32 {
    one_of(rng, &[i32::MIN, -1, 0, 1, 2, 1000, 1001, i32::MAX])
}

pub(crate) fn time(rng: &mut StdRng) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: one_of(
            rng,
            &[i64::MIN, -1, 0, 1, 253_402_300_799, 253_402_300_800, i64::MAX],
        ),
        nanos: one_of(rng, &[i32::MIN, -1, 0, 999_999_999, 1_000_000_000, i32::MAX]),
    }
}

/// Texts that break something somewhere.
pub(crate) fn text(rng: &mut StdRng) -> String {
    let texts = [
        "",
        "h00",
        "a\nb",
        "../..",
        "a/b",
        "\u{0}",
        "\u{202e}x",
        "$(reboot)",
        "ä",
    ];
    match rng.random_range(0..12) {
        0 => "x".repeat(one_of(rng, &[63, 64, 253, 254, 4096, 200_000])),
        _ => one_of(rng, &texts).to_owned(),
    }
}
