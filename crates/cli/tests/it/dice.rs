//! Moments and victims by chance, which can be had again: a test that uses them prints its seed.

/// Small, and good enough to pick moments.
pub(crate) struct Dice(u64);

/// `TERRANE_TEST_SEED` names one; else each run has its own.
#[expect(clippy::print_stdout, reason = "a test that fails must name its seed")]
pub(crate) fn seed() -> u64 {
    let named = std::env::var("TERRANE_TEST_SEED").ok();
    let seed = named.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) * 7_919 + 1);
    println!("TERRANE_TEST_SEED={seed}");
    seed
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}
