//! Handles of the device's objects. Queue pairs are named by their number, [`wire::Qpn`].

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

            /// The handle with a number that [`Self::value`] returned.
            pub const fn from_value(value: u32) -> Self {
                Self(value)
            }
        }
    )*};
}

handles! {
    /// Handle of a protection domain.
    Pd;
    /// Handle of a completion queue.
    Cq;
    /// Shared receive queue. XRC uses another number for it ([`crate::Srqs::number`]).
    Srq;
    /// Handle of an XRC domain.
    Xrcd;
    /// Local key: identifies a memory region to its owner, and is the handle by which it is deregistered.
    Lkey;
    /// Handle of a memory window.
    Window;
}
