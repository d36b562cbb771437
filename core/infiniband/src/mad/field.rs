//! Numbers in network byte order at places of a datagram.

/// A number of a datagram.
pub trait Number: Copy {
    /// Reads the number at the beginning of bytes. Bytes that are not there are zeros.
    fn read(bytes: &[u8]) -> Self;
    /// Writes the number at the beginning of bytes, as far as they reach.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Number for $number {
            fn read(bytes: &[u8]) -> Self {
                let mut whole = [0; size_of::<$number>()];
                let length = bytes.len().min(whole.len());
                whole[..length].copy_from_slice(&bytes[..length]);
                <$number>::from_be_bytes(whole)
            }

            fn write(self, bytes: &mut [u8]) {
                let whole = self.to_be_bytes();
                let length = bytes.len().min(whole.len());
                bytes[..length].copy_from_slice(&whole[..length]);
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 u128 }

/// Reads the number at a place.
pub fn get<T: Number>(bytes: &[u8], at: usize) -> T {
    T::read(bytes.get(at..).unwrap_or_default())
}

/// Writes a number at a place.
pub fn put<T: Number>(bytes: &mut [u8], at: usize, value: T) {
    if let Some(place) = bytes.get_mut(at..) {
        value.write(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_network_byte_order() {
        let mut bytes = [0; 4];
        put(&mut bytes, 1, 0x1234_u16);
        assert_eq!(bytes, [0, 0x12, 0x34, 0]);
        assert_eq!(get::<u32>(&bytes, 0), 0x0012_3400);
    }

    #[test]
    fn places_beyond_the_end_read_as_zeros() {
        let mut bytes = [1, 2];
        assert_eq!(get::<u32>(&bytes, 1), 0x0200_0000);
        assert_eq!(get::<u64>(&bytes, 9), 0);
        put(&mut bytes, 1, 0x0304_u16);
        put(&mut bytes, 7, 5_u8);
        assert_eq!(bytes, [1, 3]);
    }
}
