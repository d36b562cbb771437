//! Namespaces of a controller, and their formats (NVM command set 4.1.5.1).

use wire::nvme::identify::{self as layout, cns, descriptor};

use super::HostError;
use super::identify::identify;
use super::queue::Queue;
use crate::identifier::{Nguid, Uuid};

/// Properties of a namespace, from Identify.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// The namespace identifier (NSID).
    pub nsid: u32,
    /// The size in logical blocks (NSZE).
    pub blocks: u64,
    /// The size of a logical block in bytes.
    pub block_size: usize,
}

/// Identifiers of a namespace that no other one in the world has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identifiers {
    /// The UUID; `None` if the namespace has none.
    pub uuid: Option<Uuid>,
    /// The NGUID; `None` if the namespace has none.
    pub nguid: Option<Nguid>,
}

/// Entries of the list of active namespaces in one Identify.
const LIST_ENTRIES: usize = 1024;
/// Logical block sizes that are supported, as powers of two (LBADS).
const BLOCK_SHIFTS: std::ops::RangeInclusive<u8> = 9..=16;
/// The first LBA format in Identify Namespace, and the length of one.
const FORMATS: usize = 128;
const FORMAT_SIZE: usize = 4;

/// The identifiers of all active namespaces.
pub(super) fn active(admin: &mut Queue) -> Result<Vec<u32>, HostError> {
    let mut numbers: Vec<u32> = Vec::new();
    loop {
        let after = numbers.last().copied().unwrap_or(0);
        let list = identify(admin, cns::ACTIVE, after)?;
        let words = list
            .chunks_exact(4)
            .map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
        let page: Vec<u32> = words
            .take(LIST_ENTRIES)
            .take_while(|nsid| *nsid != 0)
            .collect();
        if page
            .iter()
            .try_fold(after, |last, nsid| (*nsid > last).then_some(*nsid))
            .is_none()
        {
            return Err(HostError::Protocol(
                "a list of namespaces that does not ascend",
            ));
        }
        let is_full = page.len() == LIST_ENTRIES;
        numbers.extend(page);
        if !is_full {
            return Ok(numbers);
        }
    }
}

/// Identifies one namespace. `transfer_max` is the longest transfer of the controller.
pub(super) fn identified(
    admin: &mut Queue,
    nsid: u32,
    transfer_max: usize,
) -> Result<Namespace, HostError> {
    let bytes = identify(admin, cns::NAMESPACE, nsid)?;
    let (found, _) = layout::Namespace::split(&bytes).ok_or(HostError::Protocol(
        "Identify returned less than the data of a namespace",
    ))?;
    // With more than 16 formats, bits 5 and 6 of FLBAS are the upper bits of the index.
    let index = usize::from(found.format & 0xf | found.format >> 1 & 0x30);
    let format = bytes
        .get(FORMATS + FORMAT_SIZE * index..)
        .and_then(|rest| rest.first_chunk());
    let [low, high, shift, _] = *format.unwrap_or(&[0; FORMAT_SIZE]);
    if found.size == 0 && shift == 0 {
        return Err(HostError::Inactive(nsid));
    }
    let metadata = u16::from_le_bytes([low, high]);
    if metadata != 0 {
        return Err(HostError::Metadata {
            nsid,
            bytes: metadata,
        });
    }
    let block_size = 1_usize.checked_shl(shift.into()).unwrap_or(0);
    if !BLOCK_SHIFTS.contains(&shift) || block_size > transfer_max {
        return Err(HostError::BlockSize {
            nsid,
            shift,
            transfer_max,
        });
    }
    Ok(Namespace {
        nsid,
        blocks: found.size,
        block_size,
    })
}

/// The globally unique identifiers of one namespace (Namespace Identification Descriptor list).
pub(super) fn identifiers(admin: &mut Queue, nsid: u32) -> Result<Identifiers, HostError> {
    let list = identify(admin, cns::DESCRIPTORS, nsid)?;
    let (mut found, mut rest) = (Identifiers::default(), &list[..]);
    while let [kind, length, _, _, after @ ..] = rest
        && *kind != 0
    {
        let Some((value, next)) = after.split_at_checked(usize::from(*length)) else {
            break;
        };
        if let Some(value) = value.first_chunk::<16>().filter(|value| **value != [0; 16]) {
            match *kind {
                descriptor::UUID => found.uuid = Some((*value).into()),
                descriptor::NGUID => found.nguid = Some((*value).into()),
                _ => {}
            }
        }
        rest = next;
    }
    Ok(found)
}
