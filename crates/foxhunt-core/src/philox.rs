//! Counter-based random numbers: Philox4x32-10.
//!
//! A draw is a pure function of (seed, purpose, stream, step, block). There is no hidden state, so the CPU and
//! the GPU draw the same bits, a resumed run continues exactly, and no draw depends on thread or launch shape.
//! This module does not choose *what* is drawn where; each operation documents its own stream and step.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with the
//! constants and ten rounds of the Random123 reference, whose known-answer vectors are the tests here.

/// What a draw is for. Two purposes never share bits, whatever their stream and step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Initial network weights; stream = parameter index.
    Init = 1,
    /// Epsilon-greedy coins and random actions; stream = env_idx, step = vector step.
    Explore = 2,
    /// Episode start bars; stream = env_idx, step = episode number of that environment.
    EnvReset = 3,
    /// Replay draws; stream = position in the batch, step = number of samples taken before.
    Replay = 4,
    /// Noisy-layer noise; stream = layer, side and pass (`noise` in `foxhunt-ops`), step = update tried or vector step.
    Noise = 5,
    /// Random baseline policies; stream = policy index, step = bar.
    Baseline = 6,
    /// Synthetic markets; stream = series index, step = bar.
    Synthetic = 7,
    /// Statistical resampling; stream = resample index.
    Bootstrap = 8,
}

/// A seeded family of Philox streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
}

impl Philox {
    /// The family of streams that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { key: split(seed) }
    }

    /// The seed it belongs to.
    #[must_use]
    pub fn seed(&self) -> u64 {
        u64::from(self.key[1]) << 32 | u64::from(self.key[0])
    }

    /// Four random words. Counter words are `[step low, step high, stream, purpose | block << 8]`; `block`
    /// below 2^24 numbers further draws under the same (purpose, stream, step).
    #[must_use]
    pub fn block(&self, purpose: Purpose, stream: u32, step: u64, block: u32) -> [u32; 4] {
        let [low, high] = split(step);
        philox4x32_10([low, high, stream, purpose as u32 | block << 8], self.key)
    }

    /// A sequential reader over one (purpose, stream, step), for host code that wants many values in a row.
    #[must_use]
    pub fn stream(&self, purpose: Purpose, stream: u32, step: u64) -> PhiloxStream {
        PhiloxStream { philox: *self, purpose, stream, step, block: 0, words: [0; 4], used: 4 }
    }
}

/// Reads the words of one (purpose, stream, step) in order; see [`Philox::stream`].
#[derive(Clone, Debug)]
pub struct PhiloxStream {
    philox: Philox,
    purpose: Purpose,
    stream: u32,
    step: u64,
    block: u32,
    words: [u32; 4],
    used: usize,
}

impl PhiloxStream {
    /// The next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.words = self.philox.block(self.purpose, self.stream, self.step, self.block);
            // 2^24 blocks are addressable; the top bit of the step doubles that, far beyond any host use.
            self.block += 1;
            if self.block == 1 << 24 {
                self.block = 0;
                self.step = self.step.wrapping_add(1 << 63);
            }
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// The next f32 in [0, 1).
    pub fn next_f32(&mut self) -> f32 {
        unit_f32(self.next_u32())
    }

    /// The next f64 in [0, 1).
    pub fn next_f64(&mut self) -> f64 {
        let high = self.next_u32();
        unit_f64(high, self.next_u32())
    }

    /// The next integer in `0..n`; `n` of 0 gives 0.
    pub fn next_below(&mut self, n: u32) -> u32 {
        below(self.next_u32(), n)
    }

    /// The next standard normal value (Box-Muller, one of the pair).
    pub fn next_normal(&mut self) -> f64 {
        // 1 - u is in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.next_f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.next_f64()).cos()
    }
}

/// f32 in [0, 1) from 32 bits: the upper 24 bits times 2^-24, so 1.0 cannot occur.
#[must_use]
pub fn unit_f32(bits: u32) -> f32 {
    (bits >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// f64 in [0, 1) from 64 bits: the upper 53 bits times 2^-53.
#[must_use]
pub fn unit_f64(high: u32, low: u32) -> f64 {
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// Integer in `0..n` from 32 bits by multiply-shift. The bias is below n / 2^32, for the head sizes and bar
/// counts used here far under what any test of this project could see.
#[must_use]
pub fn below(bits: u32, n: u32) -> u32 {
    ((u64::from(bits) * u64::from(n)) >> 32) as u32
}

fn split(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

fn philox4x32_10(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let [a_low, a_high] = split(0xD251_1F53_u64 * u64::from(c[0]));
        let [b_low, b_high] = split(0xCD9E_8D57_u64 * u64::from(c[2]));
        c = [b_high ^ c[1] ^ k[0], b_low, a_high ^ c[3] ^ k[1], a_low];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with Random123 (kat_vectors, philox4x32 10).
    #[test]
    fn known_answers() {
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox4x32_10([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    /// Case A04: a uniform value is never 1.0, not even from all ones.
    #[test]
    fn unit_interval_is_half_open() {
        assert_eq!(unit_f32(u32::MAX), 0.999_999_94);
        assert_eq!(unit_f32(0), 0.0);
        assert!(unit_f64(u32::MAX, u32::MAX) < 1.0);
        assert_eq!(below(u32::MAX, 45), 44);
        assert_eq!(below(0, 45), 0);
        assert_eq!(below(u32::MAX, 0), 0);
    }

    /// Case E02: the same address gives the same bits, and every part of the address matters.
    #[test]
    fn every_part_of_the_address_matters() {
        let base = Philox::new(7).block(Purpose::Replay, 3, 5, 0);
        assert_eq!(base, Philox::new(7).block(Purpose::Replay, 3, 5, 0));
        let others = [
            Philox::new(8).block(Purpose::Replay, 3, 5, 0),
            Philox::new(7 | 1 << 40).block(Purpose::Replay, 3, 5, 0),
            Philox::new(7).block(Purpose::Explore, 3, 5, 0),
            Philox::new(7).block(Purpose::Replay, 4, 5, 0),
            Philox::new(7).block(Purpose::Replay, 3, 6, 0),
            Philox::new(7).block(Purpose::Replay, 3, 5 | 1 << 40, 0),
            Philox::new(7).block(Purpose::Replay, 3, 5, 1),
        ];
        for other in others {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn stream_reads_the_blocks_in_order() {
        let philox = Philox::new(11);
        let mut stream = philox.stream(Purpose::Synthetic, 2, 9);
        let read: Vec<u32> = (0..8).map(|_| stream.next_u32()).collect();
        let want: Vec<u32> = (0..2).flat_map(|b| philox.block(Purpose::Synthetic, 2, 9, b)).collect();
        assert_eq!(read, want);
    }

    #[test]
    fn normal_has_mean_zero_and_unit_variance() {
        let mut stream = Philox::new(1).stream(Purpose::Synthetic, 0, 0);
        let n = 200_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let x = stream.next_normal();
            sum += x;
            squares += x * x;
        }
        let mean = sum / f64::from(n);
        // Five standard errors of the mean and of the variance.
        assert!(mean.abs() < 5.0 / f64::from(n).sqrt(), "mean {mean}");
        assert!((squares / f64::from(n) - 1.0).abs() < 5.0 * (2.0 / f64::from(n)).sqrt());
    }
}
