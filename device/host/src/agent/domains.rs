//! XRC domains, and the clients that have them open. It allocates nothing: see [`super::serve`].

use rnic::DomainName;

/// Limit of open domains, each counted once per device that has it open.
const OPEN_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Domains([Option<(DomainName, u16)>; OPEN_MAX]);

impl Domains {
    pub(super) const fn new() -> Self {
        Self([None; OPEN_MAX])
    }

    /// Opens a domain, or fails with an error number as Linux does: `EAGAIN` when it does not exist and must
    /// not be created, `EINVAL` when it exists and must not.
    pub(super) fn open(
        &mut self,
        slot: u16,
        name: DomainName,
        make: bool,
        anew: bool,
    ) -> Result<(), i32> {
        let is_there = self.0.iter().flatten().any(|(open, _)| *open == name);
        match (is_there, make, anew) {
            (true, _, true) => return Err(libc::EINVAL),
            (false, false, _) => return Err(libc::EAGAIN),
            _ => {}
        }
        *self
            .0
            .iter_mut()
            .find(|place| place.is_none())
            .ok_or(libc::ENOMEM)? = Some((name, slot));
        Ok(())
    }

    pub(super) fn close(&mut self, slot: u16, name: DomainName) -> Result<(), i32> {
        let open = self
            .0
            .iter_mut()
            .find(|place| **place == Some((name, slot)));
        *open.ok_or(libc::EINVAL)? = None;
        Ok(())
    }

    /// Removes the domains of a client whose connection has ended.
    pub(super) fn forget(&mut self, slot: u16) {
        for place in self
            .0
            .iter_mut()
            .filter(|place| place.is_some_and(|(_, by)| by == slot))
        {
            *place = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_lives_until_the_last_one_closes_it_or_is_gone() {
        let mut domains = Domains::new();
        let name = DomainName {
            file: (1, 2),
            interface: 3,
        };
        assert_eq!(domains.open(1, name, false, false), Err(libc::EAGAIN));
        assert_eq!(domains.open(1, name, true, true), Ok(()));
        assert_eq!(domains.open(2, name, true, true), Err(libc::EINVAL));
        assert_eq!(domains.open(2, name, false, false), Ok(()));
        assert_eq!(
            domains.open(
                2,
                DomainName {
                    interface: 4,
                    ..name
                },
                false,
                false
            ),
            Err(libc::EAGAIN)
        );
        domains.forget(1);
        assert_eq!(domains.open(3, name, false, false), Ok(()));
        assert_eq!(
            (domains.close(3, name), domains.close(3, name)),
            (Ok(()), Err(libc::EINVAL))
        );
        assert_eq!(domains.close(2, name), Ok(()));
        assert_eq!(domains.open(1, name, false, false), Err(libc::EAGAIN));
    }

    #[test]
    fn there_is_a_limit() {
        let mut domains = Domains::new();
        for inode in 0..OPEN_MAX as u64 {
            domains
                .open(
                    1,
                    DomainName {
                        file: (0, inode),
                        interface: 1,
                    },
                    true,
                    true,
                )
                .unwrap();
        }
        let one_more = DomainName {
            file: (1, 0),
            interface: 1,
        };
        assert_eq!(domains.open(1, one_more, true, false), Err(libc::ENOMEM));
    }
}
