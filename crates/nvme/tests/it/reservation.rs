//! Several hosts and one namespace: reservations.

use wire::nvme::reservation::{
    AcquireData, RegisterData, RegistrantExtended, ReleaseData, ReportHead, ReservationType,
};
use wire::nvme::tcp::Header;
use wire::nvme::{Admin, Command, Io, Sgl, Status, log};

use crate::support::{BLOCK, Host, io, pattern, target};

fn reserve(kind: Io, cdw10: u32) -> Command {
    Command { opcode: kind as u8, nsid: 1, cdw10, ..Command::default() }
}

fn register(host: &mut Host, key: u64) {
    let data = RegisterData { current: 0, new: key };
    let done = host.io.give(reserve(Io::ReservationRegister, 0), &data.to_bytes());
    assert!(done.status().is_success());
}

fn acquire(host: &mut Host, key: u64, kind: ReservationType) -> Status {
    let data = AcquireData { current: key, preempted: 0 };
    let command = reserve(Io::ReservationAcquire, (kind as u32) << 8);
    host.io.give(command, &data.to_bytes()).status().plain()
}

fn write(host: &mut Host) -> Status {
    host.io.give(io(Io::Write, 0, 1), &pattern(1, BLOCK)).status().plain()
}

fn read(host: &mut Host) -> Status {
    host.io.take(io(Io::Read, 0, 1), BLOCK).map_or_else(|status| status, |_| Status::SUCCESS)
}

#[test]
fn a_reservation_keeps_others_out() {
    let target = target();
    let (mut one, mut two) = (Host::new(&target, 1), Host::new(&target, 2));
    register(&mut one, 11);
    assert_eq!(acquire(&mut one, 11, ReservationType::WriteExclusive), Status::SUCCESS);
    assert_eq!((write(&mut one), write(&mut two)), (Status::SUCCESS, Status::RESERVATION_CONFLICT));
    assert_eq!((read(&mut one), read(&mut two)), (Status::SUCCESS, Status::SUCCESS));
    register(&mut two, 22);
    assert_eq!(acquire(&mut two, 22, ReservationType::WriteExclusive), Status::RESERVATION_CONFLICT);

    let report = Command { cdw10: 63, cdw11: 1, ..reserve(Io::ReservationReport, 0) };
    let bytes = two.io.take(report, 256).unwrap();
    let (head, _) = ReportHead::split(&bytes).unwrap();
    assert_eq!((head.kind, head.registrants), (1, 2));
    let (first, rest) = RegistrantExtended::split(&bytes[64..]).unwrap();
    let (second, _) = RegistrantExtended::split(rest).unwrap();
    assert_eq!((first.key, first.status, first.host_id), (11, 1, [1; 16]));
    assert_eq!((second.key, second.status, second.host_id), (22, 0, [2; 16]));

    let release = reserve(Io::ReservationRelease, (ReservationType::WriteExclusive as u32) << 8);
    let done = one.io.give(release, &ReleaseData { current: 11 }.to_bytes());
    assert!(done.status().is_success());
    assert_eq!(write(&mut two), Status::SUCCESS);
}

#[test]
fn a_preempted_host_gets_a_notice() {
    let target = target();
    let (mut one, mut two) = (Host::new(&target, 1), Host::new(&target, 2));
    register(&mut one, 11);
    register(&mut two, 22);
    assert_eq!(acquire(&mut one, 11, ReservationType::ExclusiveAccess), Status::SUCCESS);
    assert_eq!(read(&mut two), Status::RESERVATION_CONFLICT);
    let event = Command { cid: 500, opcode: Admin::AsyncEventRequest as u8, ..Command::default() };
    let event = event.with_sgl(Sgl::Transport { length: 0 });
    one.admin.send(&Header::Command(event), 0, &[]);
    let data = AcquireData { current: 22, preempted: 11 };
    let preempt = reserve(Io::ReservationAcquire, 1 | (ReservationType::ExclusiveAccess as u32) << 8);
    assert!(two.io.give(preempt, &data.to_bytes()).status().is_success());
    assert_eq!((read(&mut one), read(&mut two)), (Status::RESERVATION_CONFLICT, Status::SUCCESS));
    one.admin.work();
    assert_eq!(one.admin.response().result, 0x80_0006);
    let request = log::Request { page: log::RESERVATIONS, specific: 0, retain: false, length: 64, offset: 0 };
    let bytes = one.admin.take(request.to_command(0, 0), 64).unwrap();
    let (notice, _) = log::Reservation::split(&bytes).unwrap();
    assert_eq!((notice.kind, notice.nsid, notice.count), (1, 1, 1));
}
