//! Just enough of ELF to tell whether the dynamic linker will load our library into a program.
//! Source: System V ABI, chapter 4 (object files) and 5 (program loading).

use std::io::{self, Read, Seek, SeekFrom};

/// The properties of an ELF file that determine how it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elf {
    /// 32 or 64.
    pub(crate) bits: u8,
    /// Architecture: the field `e_machine` of the ELF header.
    pub(crate) machine: u16,
    /// Whether the program names a dynamic linker (a PT_INTERP header).
    pub(crate) dynamic: bool,
}

const MAGIC: &[u8] = b"\x7fELF";
const CLASS: usize = 4;
const DATA: usize = 5;
const BIG_ENDIAN: u8 = 2;
const MACHINE: usize = 18;
const PT_INTERP: u32 = 3;
/// The most program headers that are looked at. Real programs have about a dozen.
const HEADERS_MAX: u16 = 128;

/// The machine that this binary is for, as ELF and people call it.
#[cfg(target_arch = "x86_64")]
pub(crate) const OURS: (u16, &str) = (62, "x86-64");
/// The machine that this binary is for, as ELF and people call it.
#[cfg(target_arch = "aarch64")]
pub(crate) const OURS: (u16, &str) = (183, "64-bit ARM");

/// The common name of an `e_machine`.
pub(crate) fn machine_name(machine: u16) -> String {
    let name = match machine {
        3 => "32-bit x86",
        8 => "MIPS",
        20 | 21 => "PowerPC",
        22 => "s390x",
        40 => "32-bit ARM",
        62 => "x86-64",
        183 => "64-bit ARM",
        243 => "RISC-V",
        258 => "LoongArch",
        other => return format!("ELF machine {other}"),
    };
    name.to_owned()
}

/// Reads the headers of `file`. `None` when it is no ELF file, or one that is cut short.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read(file: &mut (impl Read + Seek)) -> io::Result<Option<Elf>> {
    let mut header = Vec::with_capacity(64);
    file.take(64).read_to_end(&mut header)?;
    if !header.starts_with(MAGIC) || header.len() < 52 {
        return Ok(None);
    }
    let fields = Fields {
        big: header[DATA] == BIG_ENDIAN,
    };
    let wide = header[CLASS] == 2;
    let bits = if wide { 64 } else { 32 };
    let Some(machine) = fields.u16(&header, MACHINE) else {
        return Ok(None);
    };
    // e_phoff, e_phentsize, e_phnum: behind the entry point, whose width is that of an address.
    let table = match wide {
        true => (
            fields.u64(&header, 32),
            fields.u16(&header, 54),
            fields.u16(&header, 56),
        ),
        false => (
            fields.u32(&header, 28).map(u64::from),
            fields.u16(&header, 42),
            fields.u16(&header, 44),
        ),
    };
    let (Some(offset), Some(size), Some(count)) = table else {
        return Ok(None);
    };
    let mut dynamic = false;
    for index in 0..count.min(HEADERS_MAX) {
        let Some(at) = offset.checked_add(u64::from(index) * u64::from(size)) else {
            break;
        };
        file.seek(SeekFrom::Start(at))?;
        let mut kind = [0; 4];
        if file.read_exact(&mut kind).is_err() {
            break;
        }
        dynamic |= fields.u32(&kind, 0) == Some(PT_INTERP);
    }
    Ok(Some(Elf {
        bits,
        machine,
        dynamic,
    }))
}

/// Numbers in the file's byte order.
struct Fields {
    big: bool,
}

macro_rules! number {
    ($($name:ident)*) => {
        $(
            fn $name(&self, bytes: &[u8], at: usize) -> Option<$name> {
                let bytes = *bytes.get(at..)?.first_chunk()?;
                Some(if self.big { $name::from_be_bytes(bytes) } else { $name::from_le_bytes(bytes) })
            }
        )*
    };
}

impl Fields {
    number!(u16 u32 u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A 64-bit header with one program header of this kind behind it.
    fn file(machine: u16, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn a_program_that_names_an_interpreter_is_dynamic() {
        let elf = read(&mut Cursor::new(file(62, PT_INTERP))).unwrap();
        assert_eq!(
            elf,
            Some(Elf {
                bits: 64,
                machine: 62,
                dynamic: true
            })
        );
        assert!(
            !read(&mut Cursor::new(file(62, 1)))
                .unwrap()
                .unwrap()
                .dynamic
        );
    }

    #[test]
    fn whatever_is_no_elf_file_is_none() {
        assert_eq!(read(&mut Cursor::new(b"#!/bin/sh\n")).unwrap(), None);
        assert_eq!(read(&mut Cursor::new(b"")).unwrap(), None);
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_answered() {
        let whole = file(183, PT_INTERP);
        for length in 0..whole.len() {
            assert!(read(&mut Cursor::new(&whole[..length])).is_ok());
        }
    }

    #[test]
    fn this_test_is_a_program_for_this_machine() {
        let path = std::env::current_exe().unwrap();
        let elf = read(&mut std::fs::File::open(path).unwrap())
            .unwrap()
            .unwrap();
        assert_eq!((elf.machine, elf.bits), (OURS.0, 64));
    }
}
