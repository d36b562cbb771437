//! CRC-32 as Ethernet has it (IEEE 802.3 clause 3.2.9), and arithmetic with its values.
//!
//! A CRC is the remainder of a division of polynomials over one bit, so it is linear: changing bits of a
//! message changes its CRC by an amount that depends on those bits and on how many bytes follow them, and on
//! nothing else. That allows CRCs to be joined, a field to be varied without running over the message again,
//! and the other way round, to work out which change of a field explains a difference.
//!
//! Polynomials are reflected in a `u32`: the top bit is the coefficient of x^0, the lowest that of x^31.

/// The generator x^32 + x^26 + … + 1, its x^32 left out.
const GENERATOR: u32 = 0xedb8_8320;

const ONE: u32 = 0x8000_0000;

/// Powers that are held ready, in steps of four bytes: enough for everything behind the identification of an
/// IPv4 packet with 4,096 bytes of payload, for which one load and one multiplication then suffice.
pub(crate) const WORDS: usize = 1056;

/// `FORWARD[n]` is x^(32 n): the effect of four times n appended bytes on a CRC.
static FORWARD: [u32; WORDS] = powers(false);

/// `BACKWARD[n]` is x^(-32 n).
static BACKWARD: [u32; WORDS] = powers(true);

const fn powers(inverse: bool) -> [u32; WORDS] {
    multiples(ONE, inverse)
}

/// `a`, then `a` times x^32 or over x^32, and so on.
const fn multiples(a: u32, inverse: bool) -> [u32; WORDS] {
    let mut powers = [a; WORDS];
    let mut index = 1;
    while index < WORDS {
        let mut power = powers[index - 1];
        let mut bit = 0;
        while bit < 32 {
            power = if inverse {
                over_x(power)
            } else {
                times_x(power)
            };
            bit += 1;
        }
        powers[index] = power;
        index += 1;
    }
    powers
}

const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ ((a & 1).wrapping_neg() & GENERATOR)
}

const fn over_x(a: u32) -> u32 {
    // The generator ends in + 1, so a polynomial with x^0 becomes divisible by x when the generator is added.
    let carry = a >> 31;
    ((a ^ (carry.wrapping_neg() & GENERATOR)) << 1) | carry
}

/// The product of two polynomials, reduced.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        product ^= b & (a >> (31 - bit) & 1).wrapping_neg();
        b = times_x(b);
        bit += 1;
    }
    product
}

/// `a` times x^(32 `words`), or times its inverse, whichever `powers` holds.
fn multiply_by_words(mut a: u32, mut words: usize, powers: &[u32; WORDS]) -> u32 {
    while words >= WORDS {
        a = multiply(a, powers[WORDS - 1]);
        words -= WORDS - 1;
    }
    if words == 0 {
        a
    } else {
        multiply(a, powers[words])
    }
}

/// The CRC of a message whose beginning has the CRC `crc`, continued by `bytes`. The CRC of nothing is 0.
#[inline]
pub fn update(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// The CRC of a message in two parts, from the CRCs of the parts and the length of the second in bytes.
pub fn combine(first: u32, second: u32, second_length: usize) -> u32 {
    shift(first, second_length) ^ second
}

/// The difference between two CRCs after both messages are continued by the same `length` bytes.
pub fn shift(mut difference: u32, length: usize) -> u32 {
    for _ in 0..(length % 4) * 8 {
        difference = times_x(difference);
    }
    multiply_by_words(difference, length / 4, &FORWARD)
}

/// The difference between the CRCs of two messages that agree but for four bytes, followed by `length_after`
/// more: `bits` are the bits in which the four bytes differ.
pub fn difference_of(bits: [u8; 4], length_after: usize) -> u32 {
    shift(u32::from_le_bytes(bits), 4 + length_after)
}

/// Undoes [`difference_of`]: the bits in four bytes, followed by `words_after` times four more, whose change
/// explains a `difference` between two CRCs. There is always exactly one answer: the caller decides whether
/// it makes sense.
pub fn bits_that_explain(difference: u32, words_after: usize) -> [u8; 4] {
    multiply_by_words(difference, words_after + 1, &BACKWARD).to_le_bytes()
}

/// [`difference_of`] for the same `bits` at each distance of a multiple of four bytes, worked out by the
/// compiler.
pub(crate) const fn differences_of(bits: [u8; 4]) -> [u32; WORDS] {
    let mut bits = u32::from_le_bytes(bits);
    let mut bit = 0;
    while bit < 32 {
        bits = times_x(bits);
        bit += 1;
    }
    multiples(bits, false)
}

/// [`difference_of`] for each value of one byte, worked out by the compiler.
pub(crate) const fn byte_differences(length_after: usize) -> [u32; 256] {
    let mut power = ONE;
    let mut bit = 0;
    while bit < 8 * (length_after + 1) {
        power = times_x(power);
        bit += 1;
    }
    let mut differences = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        differences[byte] = multiply(power, byte as u32);
        byte += 1;
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, bit by bit.
    fn reference(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for &byte in bytes {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = times_x(crc);
            }
        }
        !crc
    }

    fn message() -> [u8; 5000] {
        let mut state = 1u32;
        core::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
    }

    #[test]
    fn agrees_with_the_definition_at_every_length_and_split() {
        assert_eq!(update(0, b"123456789"), 0xcbf4_3926);
        let message = message();
        for length in (0..300).chain([1023, 1024, 4096, 4999, 5000]) {
            let whole = update(0, &message[..length]);
            assert_eq!(whole, reference(&message[..length]), "length {length}");
            let half = length / 3;
            assert_eq!(
                update(update(0, &message[..half]), &message[half..length]),
                whole
            );
        }
    }

    #[test]
    fn combine_agrees_with_one_pass() {
        let message = message();
        for split in [0, 1, 2, 3, 4, 20, 36, 100, 777, 780, 4999, 5000] {
            let (first, second) = message.split_at(split);
            let joined = combine(update(0, first), update(0, second), second.len());
            assert_eq!(joined, update(0, &message), "split {split}");
        }
    }

    #[test]
    fn a_change_of_four_bytes_is_found_again() {
        let message = message();
        for (at, words_after) in [(0, 0), (4, 5), (4, 1055), (4, 1056), (4, 1057), (4, 1248)] {
            let end = at + 4 + 4 * words_after;
            let mut changed = message;
            let bits = [0x12, 0x34, 0x40, 0x01];
            changed[at..at + 4]
                .iter_mut()
                .zip(bits)
                .for_each(|(byte, bit)| *byte ^= bit);
            let difference = update(0, &message[..end]) ^ update(0, &changed[..end]);
            assert_eq!(difference_of(bits, 4 * words_after), difference);
            assert_eq!(bits_that_explain(difference, words_after), bits);
        }
    }

    #[test]
    fn tables_of_distances_agree_with_the_arithmetic() {
        static TABLE: [u32; WORDS] = differences_of([0xff, 0, 0, 0]);
        for words in [0, 1, 2, 17, WORDS - 1] {
            assert_eq!(TABLE[words], difference_of([0xff, 0, 0, 0], 4 * words));
        }
    }

    #[test]
    fn byte_tables_agree_with_the_arithmetic() {
        for length in [0, 1, 2, 3, 31] {
            let table = byte_differences(length);
            for byte in 0..=255 {
                assert_eq!(
                    table[usize::from(byte)],
                    difference_of([0, 0, 0, byte], length)
                );
            }
        }
    }
}
