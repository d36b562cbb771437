//! Messages as tables: each field of a message is one line that gives its place, as the specification's
//! tables do, and reading and writing come from the same line.

use crate::mad::MAD_DATA_SIZE;
use crate::number::{PartitionKey, Psn, Qpn};

/// The bytes behind the common header.
pub(crate) type Data = [u8; MAD_DATA_SIZE];

/// Where (a part of) a field lies: bytes from the end of the common header, then bits from the most
/// significant one of that byte, and how many bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) byte: usize,
    pub(crate) bit: usize,
    pub(crate) width: usize,
}

impl Place {
    /// The bit after the last.
    const fn end(self) -> usize {
        self.byte * 8 + self.bit + self.width
    }

    /// Whether the place lies within a message.
    pub(crate) const fn fits(self) -> bool {
        self.bit < 8 && self.end() <= MAD_DATA_SIZE * 8
    }

    const fn moved(self, bytes: usize) -> Self {
        Self {
            byte: self.byte + bytes,
            ..self
        }
    }
}

/// The number in the bits of all `places`, most significant first.
pub(crate) fn number(data: &Data, base: usize, places: &[Place]) -> u64 {
    let mut value = 0;
    for place in places {
        let place = place.moved(base);
        for bit in place.end() - place.width..place.end() {
            let byte = data.get(bit / 8).copied().unwrap_or_default();
            value = value << 1 | u64::from(byte >> (7 - bit % 8) & 1);
        }
    }
    value
}

/// Writes the low bits of `value` where [`number`] reads them.
pub(crate) fn set_number(data: &mut Data, base: usize, places: &[Place], mut value: u64) {
    for place in places.iter().rev() {
        let place = place.moved(base);
        for bit in (place.end() - place.width..place.end()).rev() {
            if let Some(byte) = data.get_mut(bit / 8) {
                let mask = 1 << (7 - bit % 8);
                *byte = if value & 1 == 1 {
                    *byte | mask
                } else {
                    *byte & !mask
                };
            }
            value >>= 1;
        }
    }
}

/// A type that can be a field. Bits of a value that the place has no room for are not written.
pub(crate) trait BitField: Sized {
    fn load(data: &Data, base: usize, places: &[Place]) -> Self;
    fn store(&self, data: &mut Data, base: usize, places: &[Place]);
}

/// A field that is a number under another name.
macro_rules! number_field {
    ($($type:ty: |$number:ident| $from:expr, |$value:ident| $into:expr;)*) => {$(
        impl $crate::cm::layout::BitField for $type {
            fn load(
                data: &$crate::cm::layout::Data, base: usize, places: &[$crate::cm::layout::Place],
            ) -> Self {
                let $number = $crate::cm::layout::number(data, base, places);
                $from
            }

            fn store(
                &self, data: &mut $crate::cm::layout::Data, base: usize,
                places: &[$crate::cm::layout::Place],
            ) {
                let $value = *self;
                $crate::cm::layout::set_number(data, base, places, $into);
            }
        }
    )*};
}
pub(crate) use number_field;

number_field! {
    u8: |number| number as u8, |value| u64::from(value);
    u16: |number| number as u16, |value| u64::from(value);
    u32: |number| number as u32, |value| u64::from(value);
    u64: |number| number, |value| value;
    bool: |number| number != 0, |value| u64::from(value);
    Qpn: |number| Qpn::new(number as u32), |value| u64::from(value.value());
    Psn: |number| Psn::new(number as u32), |value| u64::from(value.value());
    PartitionKey: |number| PartitionKey(number as u16), |value| u64::from(value.0);
}

impl<const N: usize> BitField for [u8; N] {
    fn load(data: &Data, base: usize, places: &[Place]) -> Self {
        let at = base + places.first().map_or(0, |place| place.byte);
        data.get(at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .unwrap_or([0; N])
    }

    fn store(&self, data: &mut Data, base: usize, places: &[Place]) {
        let at = base + places.first().map_or(0, |place| place.byte);
        if let Some(place) = data.get_mut(at..at + N) {
            place.copy_from_slice(self);
        }
    }
}

/// Declares structs whose fields are at fixed places of a message: `name: type = (byte, bit, width);`, with
/// more than one place where the specification splits a field.
macro_rules! layouts {
    ($(
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $(($byte:expr, $bit:expr, $width:expr))+;)+
        }
    )+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        const _: () = {
            $($(assert!($crate::cm::layout::Place { byte: $byte, bit: $bit, width: $width }.fits());)+)+
        };

        impl $crate::cm::layout::BitField for $name {
            fn load(
                data: &$crate::cm::layout::Data, base: usize, places: &[$crate::cm::layout::Place],
            ) -> Self {
                let base = base + places.first().map_or(0, |place| place.byte);
                Self {
                    $($field: $crate::cm::layout::BitField::load(data, base, &[
                        $($crate::cm::layout::Place { byte: $byte, bit: $bit, width: $width }),+
                    ]),)+
                }
            }

            fn store(
                &self, data: &mut $crate::cm::layout::Data, base: usize,
                places: &[$crate::cm::layout::Place],
            ) {
                let base = base + places.first().map_or(0, |place| place.byte);
                $($crate::cm::layout::BitField::store(&self.$field, data, base, &[
                    $($crate::cm::layout::Place { byte: $byte, bit: $bit, width: $width }),+
                ]);)+
            }
        }

        impl Default for $name {
            /// All bits clear.
            fn default() -> Self {
                Self::parse(&[0; $crate::mad::MAD_DATA_SIZE])
            }
        }

        impl $name {
            /// Parses the bytes behind the common header. Reserved bits are ignored.
            pub fn parse(data: &[u8; $crate::mad::MAD_DATA_SIZE]) -> Self {
                $crate::cm::layout::BitField::load(data, 0, &[])
            }

            /// The bytes behind the common header. Reserved bits are clear; of numbers that are wider than
            /// their place, the low bits are taken.
            pub fn to_bytes(&self) -> [u8; $crate::mad::MAD_DATA_SIZE] {
                let mut data = [0; $crate::mad::MAD_DATA_SIZE];
                $crate::cm::layout::BitField::store(self, &mut data, 0, &[]);
                data
            }

            /// Every field's name and the bits it takes, counted from the end of the common header.
            #[cfg(test)]
            pub(crate) fn bits() -> impl Iterator<Item = (&'static str, core::ops::Range<usize>)> {
                [$($((stringify!($field), $byte * 8 + $bit..$byte * 8 + $bit + $width)),+),+].into_iter()
            }
        }
    )+};
}
pub(crate) use layouts;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_most_significant() {
        let mut data = [0; MAD_DATA_SIZE];
        data[..4].copy_from_slice(&[0b1010_0101, 0xff, 0x12, 0x34]);
        let at = |byte, bit, width| number(&data, 0, &[Place { byte, bit, width }]);
        assert_eq!((at(0, 0, 5), at(0, 5, 2), at(0, 7, 1)), (0b10100, 0b10, 1));
        assert_eq!((at(2, 0, 16), at(1, 4, 12)), (0x1234, 0xf12));
        assert_eq!(
            number(
                &data,
                2,
                &[Place {
                    byte: 0,
                    bit: 4,
                    width: 8
                }]
            ),
            0x23
        );
    }

    #[test]
    fn a_split_field_is_one_number() {
        let places = [
            Place {
                byte: 3,
                bit: 0,
                width: 8,
            },
            Place {
                byte: 9,
                bit: 4,
                width: 4,
            },
        ];
        let mut data = [0xff; MAD_DATA_SIZE];
        set_number(&mut data, 0, &places, 0xabc);
        assert_eq!((data[3], data[9]), (0xab, 0xfc));
        assert_eq!(number(&data, 0, &places), 0xabc);
        assert!(
            data.iter()
                .enumerate()
                .all(|(at, byte)| [3, 9].contains(&at) || *byte == 0xff)
        );
    }
}
