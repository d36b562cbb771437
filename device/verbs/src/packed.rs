//! Structs of programs that lie at any address.
//!
//! C requires that a struct is aligned as its fields are, but programs have work requests and scatter/gather
//! elements in packed structs (iSER in libiscsi 1.19 does), and adapters' drivers read them all the same.

use core::mem::MaybeUninit;

/// A struct of a program, at an address of any alignment.
#[repr(C, packed)]
#[derive(Clone, Copy)]
pub(crate) struct Packed<T: Copy>(T);

impl<T: Copy> Packed<T> {
    /// The struct, copied to where it is aligned.
    pub(crate) const fn get(self) -> T {
        self.0
    }
}

/// The struct at an address, or none at NULL. It is copied to `room` only if it is not aligned.
///
/// # Safety
/// The address is NULL, or that of a live struct that does not change while it is borrowed.
pub(crate) unsafe fn borrow<T: Copy>(at: *const T, room: &mut MaybeUninit<T>) -> Option<&T> {
    if at.is_aligned() {
        // SAFETY: by this function's contract, the address is NULL or that of a live struct; it is aligned.
        return unsafe { at.as_ref() };
    }
    // SAFETY: by this function's contract, the struct is live: NULL is aligned.
    Some(room.write(unsafe { at.read_unaligned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_is_read_at_every_address() {
        let mut bytes = [0_u8; 24];
        for at in 0..16 {
            // SAFETY: eight bytes from each of the first 16 are within the array.
            unsafe {
                bytes
                    .as_mut_ptr()
                    .add(at)
                    .cast::<u64>()
                    .write_unaligned(1 << at)
            };
            let mut room = MaybeUninit::uninit();
            // SAFETY: the array has eight bytes there, and they do not change while they are borrowed.
            let found = unsafe { borrow(bytes.as_ptr().add(at).cast::<u64>(), &mut room) };
            assert_eq!(found, Some(&(1 << at)));
        }
        let mut room = MaybeUninit::uninit();
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { borrow(core::ptr::null::<u64>(), &mut room) }, None);
    }
}
