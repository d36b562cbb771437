//! An NBD client that sends arbitrary bytes: requests stay within the export, and replies are sent.
#![no_main]

use nvme::nbd::{Demand, Errno, Export, Reply, Session, flag};

const SIZE: u64 = 1 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let flags = flag::HAS_FLAGS | flag::FLUSH | flag::FUA | flag::TRIM | flag::WRITE_ZEROES;
    let (name, description) = ("disk".to_owned(), "a disk".to_owned());
    let mut session = Session::new(Export {
        name,
        description,
        size: SIZE,
        block_size: 512,
        flags,
    });
    // The first byte chooses the pieces in which the rest comes.
    let Some((piece, mut rest)) = bytes.split_first() else {
        return;
    };
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(usize::from(*piece).max(1)));
        rest = later;
        if !session.wants_input() {
            return;
        }
        session.received(now);
        loop {
            let (cookie, within) = match session.next_demand() {
                Ok(None) => break,
                Err(_) => return,
                Ok(Some(Demand::Read {
                    cookie,
                    offset,
                    length,
                })) => (cookie, offset + length as u64 <= SIZE && length > 0),
                Ok(Some(Demand::Write {
                    cookie,
                    offset,
                    data,
                    ..
                })) => (
                    cookie,
                    offset + data.len() as u64 <= SIZE && !data.is_empty(),
                ),
                Ok(Some(Demand::Flush { cookie })) => (cookie, true),
                Ok(Some(
                    Demand::Trim {
                        cookie,
                        offset,
                        length,
                    }
                    | Demand::Zero {
                        cookie,
                        offset,
                        length,
                        ..
                    },
                )) => (cookie, offset + length <= SIZE && length > 0),
            };
            assert!(within, "beyond the export");
            let reply = match cookie % 3 {
                0 => Reply::Done,
                1 => Reply::Data {
                    offset: 0,
                    bytes: &[7; 9],
                },
                _ => Reply::Failed(Errno::Io),
            };
            session.reply(cookie, reply);
        }
        let out = session.output().len();
        session.sent(out);
    }
});
