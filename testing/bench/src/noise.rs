//! The machine's noise: the time of a loop that does the same work each time. Measured figures vary by as
//! much as this time does.

use std::hint::black_box;
use std::time::Instant;

/// Steps of the loop: about 20 ms.
const STEPS: u32 = 10_000_000;

/// Runs the loop once; returns how many milliseconds it took.
pub fn fixed_loop() -> f64 {
    let begin = Instant::now();
    let mut state = black_box(0x9e37_79b9_u32);
    for _ in 0..STEPS {
        // Xorshift: each step needs the result of the one before it.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
    }
    black_box(state);
    begin.elapsed().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_is_run() {
        // No compiler and no processor does ten million dependent steps in a tenth of a millisecond.
        assert!(fixed_loop() > 0.1);
    }
}
