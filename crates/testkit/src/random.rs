//! Reproducible random numbers: a test that uses them prints the seed.

use std::fmt;

/// Good enough to pick times, victims and values.
pub struct SeededRng {
    seed: u64,
    state: u64,
}

/// `TERRANE_TEST_SEED` sets the seed; else each run has its own. The output of a failed test shows it.
#[expect(clippy::print_stdout, reason = "a test that fails must name its seed")]
pub fn seed() -> u64 {
    let named = std::env::var("TERRANE_TEST_SEED").ok();
    let seed = named.map(|seed| seed.parse().expect("`TERRANE_TEST_SEED` is a number"));
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::UNIX_EPOCH.elapsed().expect("a clock");
        u64::from(std::process::id()) << 32 | u64::from(now.subsec_nanos())
    });
    println!("TERRANE_TEST_SEED={seed}");
    seed
}

impl SeededRng {
    pub fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// A number less than `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        // SplitMix64: similar seeds give unrelated numbers.
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides.max(1)
    }

    /// An index into a list of this length.
    pub fn place(&mut self, length: usize) -> usize {
        let place = self.roll(u64::try_from(length).expect("a length"));
        usize::try_from(place).expect("less than a length")
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.place(from.len())]
    }
}

/// For the message of a test that fails.
impl fmt::Display for SeededRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TERRANE_TEST_SEED={}", self.seed)
    }
}
