//! The Diffie-Hellman groups: NULL, and those of RFC 7919.

use std::sync::OnceLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use serde::{Deserialize, Serialize};

use super::Random;

/// A Diffie-Hellman group identifier (Base figure 454).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// No Diffie-Hellman exchange: the response depends on the secret alone.
    Null = 0,
    /// The group of RFC 7919 with a prime of 2048 bits.
    Ffdhe2048 = 1,
    /// The group of RFC 7919 with a prime of 3072 bits.
    Ffdhe3072 = 2,
    /// The group of RFC 7919 with a prime of 4096 bits.
    Ffdhe4096 = 3,
    /// The group of RFC 7919 with a prime of 6144 bits.
    Ffdhe6144 = 4,
    /// The group of RFC 7919 with a prime of 8192 bits.
    Ffdhe8192 = 5,
}

/// The private exponent of one side, until the public value of the other side arrives.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    group: Group,
    exponent: BoxedUint,
}

/// Bits of a private exponent: twice the strength of the largest group (RFC 7919, appendix A: 400 there).
const EXPONENT_BITS: u32 = 512;

impl Group {
    /// All groups in the order in which our host offers them: the strongest of low cost first, NULL last.
    pub const ALL: [Self; 6] = [
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe2048,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
        Self::Null,
    ];

    /// The groups that a controller accepts unless one is configured, in the order of its choice. The two
    /// largest take several times the processor time of the others, and an unauthenticated host could request
    /// them.
    pub const UNASKED: [Self; 4] = [
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe2048,
        Self::Null,
    ];

    /// The group with this identifier; `None` for an identifier that is reserved.
    pub fn parse(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| *group as u8 == number)
    }

    /// The bits of the prime, and the addend in its formula (RFC 7919, appendix A).
    const fn recipe(self) -> (u32, u64) {
        match self {
            Self::Null => (0, 0),
            Self::Ffdhe2048 => (2048, 560_316),
            Self::Ffdhe3072 => (3072, 2_625_351),
            Self::Ffdhe4096 => (4096, 5_736_041),
            Self::Ffdhe6144 => (6144, 15_705_020),
            Self::Ffdhe8192 => (8192, 10_965_728),
        }
    }

    /// The length of a public value in bytes; 0 with the NULL group.
    pub const fn length(self) -> usize {
        self.recipe().0 as usize / 8
    }

    /// The prime, most significant byte first.
    pub(super) fn prime(self) -> &'static [u8] {
        static PRIMES: [OnceLock<Vec<u8>>; 6] = [const { OnceLock::new() }; 6];
        PRIMES[self as usize].get_or_init(|| {
            let (bits, addend) = self.recipe();
            if bits == 0 {
                Vec::new()
            } else {
                prime(bits, addend)
            }
        })
    }

    fn modulus(self) -> Option<BoxedMontyParams> {
        let prime = BoxedUint::from_be_slice(self.prime(), self.recipe().0).ok()?;
        Some(BoxedMontyParams::new(Option::from(Odd::new(prime))?))
    }

    fn power(self, base: BoxedUint, exponent: &BoxedUint) -> Option<Vec<u8>> {
        let power =
            BoxedMontyForm::new(base, self.modulus()?).pow_bounded_exp(exponent, EXPONENT_BITS);
        Some(power.retrieve().to_be_bytes().to_vec())
    }

    /// Generates a private exponent and its public value; `None` with the NULL group.
    pub(super) fn begin(self, random: Random<'_>) -> Option<(Exchange, Vec<u8>)> {
        if self == Self::Null {
            return None;
        }
        let mut bytes = [0; EXPONENT_BITS as usize / 8];
        random(&mut bytes);
        // At least 1, and below the order of the group: the lowest bit is set.
        bytes[bytes.len() - 1] |= 1;
        let exponent = BoxedUint::from_be_slice(&bytes, EXPONENT_BITS).ok()?;
        let two = BoxedUint::from(2_u8).widen(self.recipe().0);
        let public = self.power(two, &exponent)?;
        Some((
            Exchange {
                group: self,
                exponent,
            },
            public,
        ))
    }
}

impl Exchange {
    /// The shared secret. `None` for a public value that is not between 2 and p - 2: 0, 1 and p - 1 would
    /// make the secret predictable (RFC 7919, 5.1).
    pub(super) fn end(&self, public: &[u8]) -> Option<Vec<u8>> {
        let bits = self.group.recipe().0;
        if public.len() != self.group.length() {
            return None;
        }
        let other = BoxedUint::from_be_slice(public, bits).ok()?;
        let prime = BoxedUint::from_be_slice(self.group.prime(), bits).ok()?;
        let one = BoxedUint::one_with_precision(bits);
        let last = prime.wrapping_sub(&one);
        if other <= one || other >= last {
            return None;
        }
        self.group.power(other, &self.exponent)
    }
}

/// p = 2^b - 2^(b-64) + (floor(2^(b-130) e) + addend) 2^64 - 1 (RFC 7919, appendix A).
fn prime(bits: u32, addend: u64) -> Vec<u8> {
    let limbs = bits as usize / 64;
    // e as a fixed-point number, lowest limb first: the integer part above `bits` places and 64 more for
    // rounding errors. 1/n! is added until the terms are zero.
    let places = limbs + 1;
    let mut term = vec![0_u64; places + 1];
    term[places] = 1;
    let mut e = term.clone();
    let mut divisor = 1;
    while term.iter().any(|limb| *limb != 0) {
        divide(&mut term, divisor);
        add(&mut e, &term);
        divisor += 1;
    }
    // floor(2^(bits-130) e): the lowest 194 of bits + 64 places are removed.
    let mut digits = shifted_right(&e, 194);
    digits.truncate(limbs - 1);
    // The final subtraction of 1 sets the lowest 64 bits, and reduces the number above by one.
    add(&mut digits, &[addend - 1]);
    // The highest 64 bits are ones too.
    let ones = u64::MAX;
    let mut prime = vec![ones];
    prime.extend(digits);
    prime.resize(limbs, 0);
    prime[limbs - 1] = ones;
    prime
        .iter()
        .rev()
        .flat_map(|limb| limb.to_be_bytes())
        .collect()
}

fn divide(number: &mut [u64], divisor: u64) {
    let mut rest = 0_u128;
    for limb in number.iter_mut().rev() {
        let whole = rest << 64 | u128::from(*limb);
        *limb = (whole / u128::from(divisor)) as u64;
        rest = whole % u128::from(divisor);
    }
}

fn add(number: &mut [u64], other: &[u64]) {
    let mut carry = 0_u128;
    for (at, limb) in number.iter_mut().enumerate() {
        let sum = u128::from(*limb) + u128::from(*other.get(at).unwrap_or(&0)) + carry;
        *limb = sum as u64;
        carry = sum >> 64;
    }
}

fn shifted_right(number: &[u64], bits: u32) -> Vec<u64> {
    let (limbs, bits) = ((bits / 64) as usize, bits % 64);
    let above = |at: usize| number.get(at + 1).map_or(0, |limb| limb << (64 - bits));
    (limbs..number.len())
        .map(|at| number[at] >> bits | above(at))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    /// SHA-256 of the primes as OpenSSL has them.
    const OPENSSL: [(Group, &str); 5] = [
        (
            Group::Ffdhe2048,
            "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
        ),
        (
            Group::Ffdhe3072,
            "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
        ),
        (
            Group::Ffdhe4096,
            "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
        ),
        (
            Group::Ffdhe6144,
            "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
        ),
        (
            Group::Ffdhe8192,
            "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
        ),
    ];

    #[test]
    fn primes_are_those_of_openssl() {
        for (group, expected) in OPENSSL {
            let digest = Sha256::digest(group.prime());
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, expected, "{group:?}");
        }
    }

    #[test]
    fn both_sides_compute_the_same_secret() {
        for group in [Group::Ffdhe2048, Group::Ffdhe3072] {
            let (one, one_public) = group.begin(&mut |bytes| bytes.fill(7)).unwrap();
            let (two, two_public) = group.begin(&mut |bytes| bytes.fill(9)).unwrap();
            let secret = one.end(&two_public).unwrap();
            assert_eq!(Some(&secret), two.end(&one_public).as_ref());
            assert_eq!(secret.len(), group.length());
        }
    }

    #[test]
    fn public_values_with_a_predictable_secret_are_refused() {
        let group = Group::Ffdhe2048;
        let (exchange, _) = group.begin(&mut |bytes| bytes.fill(7)).unwrap();
        let mut value = vec![0; group.length()];
        assert_eq!(exchange.end(&value), None);
        value[group.length() - 1] = 1;
        assert_eq!(exchange.end(&value), None);
        value[group.length() - 1] = 2;
        assert!(exchange.end(&value).is_some());
        let mut last = group.prime().to_vec();
        assert_eq!(exchange.end(&last), None);
        last[group.length() - 1] ^= 1;
        assert_eq!(exchange.end(&last), None);
        assert_eq!(exchange.end(&value[1..]), None);
    }
}
