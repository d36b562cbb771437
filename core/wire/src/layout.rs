//! Little-endian structures as tables: each field is one line that gives its place, as the figures of the
//! specifications do, and reading and writing come from the same line. NVMe and SMB count bytes from 0.

/// A type that can be a field: its size, and how its bytes are read and written.
pub(crate) trait Field: Sized {
    const SIZE: usize;
    fn load(bytes: &[u8]) -> Self;
    fn store(&self, bytes: &mut [u8]);
}

macro_rules! integer_field {
    ($($type:ty)*) => {$(
        impl Field for $type {
            const SIZE: usize = size_of::<$type>();

            #[inline]
            fn load(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0, |bytes| Self::from_le_bytes(*bytes))
            }

            #[inline]
            fn store(&self, bytes: &mut [u8]) {
                if let Some(place) = bytes.first_chunk_mut() {
                    *place = self.to_le_bytes();
                }
            }
        }
    )*};
}

integer_field! { u8 u16 u32 u64 u128 }

impl<const N: usize> Field for [u8; N] {
    const SIZE: usize = N;

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }

    #[inline]
    fn store(&self, bytes: &mut [u8]) {
        if let Some(place) = bytes.first_chunk_mut() {
            *place = *self;
        }
    }
}

/// Declares structures of a fixed size whose fields are at fixed places: `field: type = first byte;`. A place
/// is checked to lie within the structure and behind the field before it when the crate is compiled.
macro_rules! layouts {
    ($(
        $(#[$doc:meta])*
        $name:ident[$size:literal] {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $at:literal;)+
        }
    )+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        const _: () = {
            let mut end = 0;
            $(
                assert!($at >= end, "fields stand in order and do not overlap");
                end = $at + <$type as $crate::layout::Field>::SIZE;
            )+
            assert!(end <= $size, "fields lie within the structure");
        };

        impl $crate::layout::Field for $name {
            const SIZE: usize = $size;

            #[inline]
            fn load(bytes: &[u8]) -> Self {
                Self {
                    $($field: $crate::layout::Field::load(bytes.get($at..).unwrap_or_default()),)+
                }
            }

            #[inline]
            fn store(&self, bytes: &mut [u8]) {
                $($crate::layout::Field::store(
                    &self.$field,
                    bytes.get_mut($at..).unwrap_or_default(),
                );)+
            }
        }

        impl Default for $name {
            /// All bits clear.
            #[inline]
            fn default() -> Self {
                Self::parse(&[0; $size])
            }
        }

        impl $name {
            /// Bytes of the structure.
            pub const SIZE: usize = $size;

            /// Parses its bytes. Reserved bytes are ignored.
            #[inline]
            pub fn parse(bytes: &[u8; $size]) -> Self {
                $crate::layout::Field::load(bytes)
            }

            /// The structure at the start of `bytes`, and the rest.
            #[inline]
            pub fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
                let (first, rest) = bytes.split_first_chunk()?;
                Some((Self::parse(first), rest))
            }

            /// The bytes of the structure, reserved ones 0.
            #[inline]
            pub fn to_bytes(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $crate::layout::Field::store(self, &mut bytes);
                bytes
            }

            /// Which bytes the fields take.
            #[doc(hidden)]
            pub const FIELDS: &[core::ops::Range<usize>] =
                &[$($at..$at + <$type as $crate::layout::Field>::SIZE),+];
        }
    )+};
}
pub(crate) use layouts;
