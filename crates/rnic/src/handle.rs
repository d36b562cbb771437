//! Names of the device's objects. Queue pairs are named by their number, [`wire::Qpn`].

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// The number behind the handle.
            pub const fn value(self) -> u32 {
                self.0
            }

            /// The handle of a number that [`Self::value`] gave.
            pub const fn from_value(value: u32) -> Self {
                Self(value)
            }
        }
    )*};
}

handles! {
    /// Protection domain.
    Pd;
    /// Completion queue.
    Cq;
    /// Shared receive queue. XRC knows it by another number ([`crate::Device::srq_number`]).
    Srq;
    /// XRC domain.
    Xrcd;
    /// Local key: names a memory region to its owner, and is the handle by which it is deregistered.
    Lkey;
    /// Memory window.
    Window;
}
