//! Identify: every data structure is returned, or refused with the status of the specification; its fields
//! agree with what the controller does.

use nvme::limits;
use wire::nvme::feature::events;
use wire::nvme::identify::{self, cns, io_command};
use wire::nvme::tcp::Digests;
use wire::nvme::{Admin, Command, Io, Status, log, property};

use crate::support::{Line, admin, request_event, target};

fn identify(line: &mut Line, kind: u8, nsid: u32, command_set: u8) -> Result<Vec<u8>, Status> {
    let (opcode, cdw11) = (Admin::Identify as u8, u32::from(command_set) << 24);
    line.take(
        Command {
            opcode,
            nsid,
            cdw10: kind.into(),
            cdw11,
            ..Command::default()
        },
        4096,
    )
}

/// What a controller with the namespace 1 answers.
fn expected(kind: u8, nsid: u32, command_set: u8) -> Result<(), Status> {
    const LAST: u32 = 0xffff_fffe;
    let of_one = if nsid == 1 {
        Ok(())
    } else {
        Err(Status::INVALID_NAMESPACE)
    };
    let list = if nsid < LAST {
        Ok(())
    } else {
        Err(Status::INVALID_NAMESPACE)
    };
    match kind {
        // An inactive namespace has a structure of zeros.
        cns::NAMESPACE | cns::ALLOCATED_NAMESPACE if [1, 2].contains(&nsid) => Ok(()),
        cns::NAMESPACE | cns::ALLOCATED_NAMESPACE => Err(Status::INVALID_NAMESPACE),
        cns::CONTROLLER | cns::CONTROLLERS | cns::COMMAND_SETS => Ok(()),
        cns::ACTIVE | cns::ALLOCATED => list,
        cns::DESCRIPTORS | cns::INDEPENDENT_NAMESPACE | cns::NAMESPACE_CONTROLLERS => of_one,
        cns::COMMAND_SET_NAMESPACE if command_set == 0 => of_one,
        cns::COMMAND_SET_CONTROLLER if command_set == 0 => Ok(()),
        cns::COMMAND_SET_ACTIVE if command_set == 0 => list,
        _ => Err(Status::INVALID_FIELD),
    }
}

#[test]
fn every_structure_is_returned_or_refused() {
    let target = target();
    let (mut line, _) = admin(&target, 1, Digests::default());
    for kind in 0..=u8::MAX {
        for nsid in [0, 1, 2, 0xffff_fffe, 0xffff_ffff] {
            for command_set in [0, 2] {
                let answer = identify(&mut line, kind, nsid, command_set).map(drop);
                let wanted = expected(kind, nsid, command_set);
                assert_eq!(answer, wanted, "{kind:#x} {nsid:#x} {command_set}");
            }
        }
    }
}

#[test]
fn fields_agree_with_what_the_controller_does() {
    let target = target();
    let (mut line, id) = admin(&target, 1, Digests::default());
    let bytes = identify(&mut line, cns::CONTROLLER, 0, 0).unwrap();
    let (it, _) = identify::Controller::split(&bytes).unwrap();
    let capabilities =
        property::Capabilities::parse(line.property(true, property::CAPABILITIES).result);
    assert_eq!((it.controller_id, it.kind), (id, 1));
    assert_eq!(
        u64::from(it.version),
        line.property(false, property::VERSION).result
    );
    assert_eq!(it.commands_max, capabilities.entries_max + 1);
    assert_eq!(4096 << it.transfer_max, limits::TRANSFER_BYTES_MAX);
    assert_eq!(
        it.command_capsule as usize * 16,
        64 + limits::TCP_IN_CAPSULE
    );
    assert_eq!((it.response_capsule, it.in_capsule_offset), (1, 0));
    assert_eq!(
        (it.namespaces, it.namespaces_allowed),
        (limits::NAMESPACES_MAX, limits::NAMESPACES_MAX)
    );
    // Controllers are dynamic, and an SGL has one descriptor of exactly the data.
    assert_eq!(
        (it.fabric_attributes, it.sgl_blocks_max, it.sgls & 1 << 18),
        (0, 1, 0)
    );
    // As many event requests wait as AERL says, and every event of OAES can be enabled.
    let requests = u16::from(it.event_requests) + 1;
    (0..requests).for_each(|cid| request_event(&mut line, 1000 + cid));
    assert!(line.pdus.is_empty());
    request_event(&mut line, 2000);
    assert_eq!(line.response().status().plain(), Status::AER_LIMIT_EXCEEDED);
    assert_eq!(it.events, events::NAMESPACES | events::ANA);
    // The optional commands are those of the Commands Supported and Effects log page.
    let request = log::Request {
        page: log::COMMANDS,
        specific: 0,
        retain: true,
        length: 4096,
        offset: 0,
    };
    let commands = line.take(request.to_command(0, 0), 4096).unwrap();
    for (bit, command) in [
        (io_command::COMPARE, Io::Compare),
        (io_command::DATASET, Io::DatasetManagement),
        (io_command::WRITE_ZEROES, Io::WriteZeroes),
        (io_command::RESERVATIONS, Io::ReservationRegister),
        (io_command::VERIFY, Io::Verify),
        (io_command::COPY, Io::Copy),
    ] {
        let is_supported = commands[(256 + command as usize) * 4] & 1 == 1;
        assert_eq!(it.io_commands & bit != 0, is_supported, "{command:?}");
    }
    // Features have a select field, and none can be saved.
    assert!(it.io_commands & io_command::SAVE != 0 && it.io_commands & io_command::TIMESTAMP != 0);
}
