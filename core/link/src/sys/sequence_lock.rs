//! A sequence lock: words that one thread writes, and that other processes copy without writing anything. The
//! sequence number is odd while the words change; a copy is whole if the number was even before it and is the
//! same after it.
//!
//! x86-64 keeps the stores, and the loads, of each side in their order; 64-bit ARM does so by what stands
//! here. The functions take any [`Word`], so that a model checker executes the same code (`model.rs`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// An atomic word in memory that processes share.
pub trait Word<V> {
    /// Loads the value.
    fn load(&self, order: Ordering) -> V;
    /// Stores a value.
    fn store(&self, value: V, order: Ordering);
    /// A fence of this order.
    fn fence(order: Ordering);
}

macro_rules! word {
    ($word:ty, $value:ty) => {
        impl Word<$value> for $word {
            #[inline]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            #[inline]
            fn fence(order: Ordering) {
                fence(order);
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

/// Writes the words. Only one thread does at a time.
pub fn write<S: Word<u32>, W: Word<u64>>(sequence: &S, words: &[W], values: &[u64]) {
    let number = sequence.load(Ordering::Relaxed);
    sequence.store(number.wrapping_add(1), Ordering::Relaxed);
    // A reader that sees one of the new words sees the odd number too, and reads again.
    S::fence(Ordering::Release);
    for (word, value) in words.iter().zip(values) {
        word.store(*value, Ordering::Relaxed);
    }
    // Release: a reader that loads the even number also loads the words written before it.
    sequence.store(number.wrapping_add(2), Ordering::Release);
}

/// A whole copy of the words, and their sequence number; `None` while they are being written.
pub fn read<S: Word<u32>, W: Word<u64>, const N: usize>(
    sequence: &S,
    words: &[W; N],
) -> Option<([u64; N], u32)> {
    let before = sequence.load(Ordering::Acquire);
    let values = std::array::from_fn(|word| words[word].load(Ordering::Relaxed));
    // The second look at the number comes after the words.
    S::fence(Ordering::Acquire);
    let after = sequence.load(Ordering::Relaxed);
    (before == after && before.is_multiple_of(2)).then_some((values, before))
}

/// Whether the words are those that were read with this sequence number.
#[inline]
pub fn is_unchanged<S: Word<u32>>(sequence: &S, seen: u32) -> bool {
    sequence.load(Ordering::Acquire) == seen
}
