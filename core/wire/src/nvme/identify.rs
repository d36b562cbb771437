//! The data that Identify returns (Base 5.17, NVM 4.1.5).

use crate::layout::layouts;

/// Bytes of everything that Identify returns.
pub const IDENTIFY_SIZE: usize = 4096;

/// The requested data structure (CNS): the low byte of dword 10.
pub mod cns {
    /// Identify Namespace, of the NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller, common to all command sets.
    pub const CONTROLLER: u8 = 0x01;
    /// The numbers of active namespaces.
    pub const ACTIVE: u8 = 0x02;
    /// Namespace Identification Descriptors: identifiers of a namespace that are unique worldwide.
    pub const DESCRIPTORS: u8 = 0x03;
    /// A namespace in terms of its command set.
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// The controller in terms of a command set.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Active namespaces of a command set.
    pub const COMMAND_SET_ACTIVE: u8 = 0x07;
    /// A namespace in terms of none.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// The numbers of allocated namespaces.
    pub const ALLOCATED: u8 = 0x10;
    /// One allocated namespace.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers that a namespace is attached to.
    pub const NAMESPACE_CONTROLLERS: u8 = 0x12;
    /// All controllers of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    /// The I/O command sets of a controller.
    pub const COMMAND_SETS: u8 = 0x1c;
}

layouts! {
    /// Identify Controller data (NVMe base specification 2.0, figure 275).
    Controller[4096] {
        /// PCI vendor identifier (VID).
        vendor: u16 = 0;
        /// PCI subsystem vendor.
        subsystem_vendor: u16 = 2;
        /// Serial number, spaced.
        serial: [u8; 20] = 4;
        /// Model number (MN), padded with spaces.
        model: [u8; 40] = 24;
        /// Firmware revision, spaced.
        firmware: [u8; 8] = 64;
        /// Recommended arbitration burst.
        arbitration_burst: u8 = 72;
        /// IEEE organisationally unique identifier, little endian.
        oui: [u8; 3] = 73;
        /// More than one port, controller; ANA.
        multipath: u8 = 76;
        /// The most data of one command, as 2^n pages of 4 KiB; 0 without limit.
        transfer_max: u8 = 77;
        /// Identifier of this controller (CNTLID).
        controller_id: u16 = 78;
        /// Version of the specification.
        version: u32 = 80;
        /// How long resuming may take.
        resume_latency: u32 = 84;
        /// How long entering a runtime power state may take.
        entry_latency: u32 = 88;
        /// OAES: asynchronous events that the controller can send.
        events: u32 = 92;
        /// Controller attributes (CTRATT), bit by bit.
        attributes: u32 = 96;
        /// 1 for I/O, 2 for discovery, 3 for administration.
        kind: u8 = 111;
        /// Retry delays, in units of 100 ms.
        retry_delay1: u16 = 128;
        /// Retry delays, in units of 100 ms.
        retry_delay2: u16 = 130;
        /// Retry delays, in units of 100 ms.
        retry_delay3: u16 = 132;
        /// Optional admin commands.
        admin_commands: u16 = 256;
        /// Aborts at once, less one.
        aborts: u8 = 258;
        /// Event requests at once, less one.
        event_requests: u8 = 259;
        /// Firmware slots: read only in bit 0, count in bits 1 to 3.
        firmware_slots: u8 = 260;
        /// Log page attributes (LPA).
        log_pages: u8 = 261;
        /// Entries of the error log, less one.
        error_entries: u8 = 262;
        /// Power states, less one.
        power_states: u8 = 263;
        /// Vendor commands have the common form.
        vendor_commands: u8 = 264;
        /// Warning temperature, Kelvin.
        warning_temperature: u16 = 266;
        /// Critical temperature, Kelvin.
        critical_temperature: u16 = 268;
        /// Granularity of keep alive, in units of 100 ms.
        keep_alive: u16 = 320;
        /// How long a change of access may take, in seconds.
        ana_transition: u8 = 342;
        /// ANACAP: ANA states that the controller can report.
        ana_capabilities: u8 = 343;
        /// The highest group.
        ana_group_max: u32 = 344;
        /// How many groups.
        ana_groups: u32 = 348;
        /// Entries of submission queues: largest and required, as powers of two.
        submission_entry: u8 = 512;
        /// Entries of completion queues.
        completion_entry: u8 = 513;
        /// Commands at once.
        commands_max: u16 = 514;
        /// Number of namespaces (NN), the largest identifier.
        namespaces: u32 = 516;
        /// Optional I/O commands.
        io_commands: u16 = 520;
        /// Fused operations: bit 0 compare and write.
        fused: u16 = 522;
        /// Format NVM attributes (FNA), bit by bit.
        format: u8 = 524;
        /// Volatile write cache.
        write_cache: u8 = 525;
        /// Blocks that are written atomically, less one.
        atomic_write: u16 = 526;
        /// AWUPF: atomic write unit when power fails.
        atomic_write_power_fail: u16 = 528;
        /// Vendor I/O commands have the common form.
        vendor_io_commands: u8 = 530;
        /// Namespace write protection.
        write_protection: u8 = 531;
        /// Blocks that are compared and written atomically, less one.
        atomic_compare_write: u16 = 532;
        /// Descriptor formats of Copy.
        copy_formats: u16 = 534;
        /// Support of scatter-gather lists (SGLS).
        sgls: u32 = 536;
        /// Namespaces that the host may reckon with.
        namespaces_allowed: u32 = 540;
        /// The subsystem's name.
        subsystem: [u8; 256] = 768;
        /// Bytes of a command capsule, in units of 16.
        command_capsule: u32 = 1792;
        /// Bytes of a response capsule, in units of 16.
        response_capsule: u32 = 1796;
        /// Where in-capsule data begin behind the command, in units of 16.
        in_capsule_offset: u16 = 1800;
        /// Bit 0: controllers are static.
        fabric_attributes: u8 = 1802;
        /// SGL data blocks of a command.
        sgl_blocks_max: u8 = 1803;
        /// Optional fabrics commands: bit 0 Disconnect.
        fabric_commands: u16 = 1804;
        /// The first power state.
        power_state0: [u8; 32] = 2048;
    }
    /// A namespace of the NVM command set.
    Namespace[4096] {
        /// Namespace size (NSZE), in logical blocks.
        size: u64 = 0;
        /// Blocks that can be allocated.
        capacity: u64 = 8;
        /// Blocks that are.
        used: u64 = 16;
        /// Thin, atomicity of its own, deallocated blocks are an error, preferred sizes are given.
        features: u8 = 24;
        /// Formats, less one.
        formats: u8 = 25;
        /// The format in use.
        format: u8 = 26;
        /// Metadata capabilities (MC), bit by bit.
        metadata: u8 = 27;
        /// Protection that it can.
        protection_capabilities: u8 = 28;
        /// Protection that it does.
        protection: u8 = 29;
        /// Bit 0: more than one controller may have it.
        sharing: u8 = 30;
        /// Reservation capabilities (RESCAP), bit by bit.
        reservations: u8 = 31;
        /// How far a format has come.
        format_progress: u8 = 32;
        /// The values that reads of deallocated blocks return.
        deallocated: u8 = 33;
        /// Blocks, less one.
        atomic_write: u16 = 34;
        /// Blocks, less one.
        atomic_write_power_fail: u16 = 36;
        /// Blocks, less one.
        atomic_compare_write: u16 = 38;
        /// NVM capacity (NVMCAP), in bytes.
        bytes: u128 = 48;
        /// Preferred granularity of writes, blocks less one.
        write_granularity: u16 = 64;
        /// Preferred alignment of writes.
        write_alignment: u16 = 66;
        /// Preferred granularity of deallocation.
        deallocate_granularity: u16 = 68;
        /// Preferred alignment of deallocation.
        deallocate_alignment: u16 = 70;
        /// Optimal size of writes.
        write_optimal: u16 = 72;
        /// Blocks of one source range of Copy.
        copy_range_max: u16 = 74;
        /// Blocks of one Copy.
        copy_max: u32 = 76;
        /// Source ranges, less one.
        copy_ranges_max: u8 = 80;
        /// Identifier of the ANA group (ANAGRPID).
        ana_group: u32 = 92;
        /// Bit 0: write protected.
        attributes: u8 = 99;
        /// Namespace globally unique identifier (NGUID).
        nguid: [u8; 16] = 104;
        /// IEEE extended unique identifier (EUI-64).
        eui64: [u8; 8] = 120;
        /// The first format: metadata bytes u16, block size as a power of two, performance.
        format0: [u8; 4] = 128;
        /// The second LBA format (LBAF1).
        format1: [u8; 4] = 132;
    }
    /// The controller in terms of the NVM command set.
    NvmController[4096] {
        /// Verify: the most data, as 2^n pages.
        verify_max: u8 = 0;
        /// Write Zeroes: the most data, as 2^n pages.
        write_zeroes_max: u8 = 1;
        /// Write Uncorrectable: the most data, as 2^n pages.
        write_uncorrectable_max: u8 = 2;
        /// Dataset Management: ranges.
        dataset_ranges: u8 = 3;
        /// Dataset Management: blocks of a range.
        dataset_range_blocks: u32 = 4;
        /// Dataset Management: blocks.
        dataset_blocks: u64 = 8;
    }
    /// A namespace in terms of no command set.
    IndependentNamespace[4096] {
        /// Common namespace features (NSFEAT), bit by bit.
        features: u8 = 0;
        /// Bit 0: more than one controller may have it.
        sharing: u8 = 1;
        /// Reservation capabilities (RESCAP), bit by bit.
        reservations: u8 = 2;
        /// How far a format has come.
        format_progress: u8 = 3;
        /// Identifier of the ANA group (ANAGRPID).
        ana_group: u32 = 4;
        /// Bit 0: write protected.
        attributes: u8 = 8;
        /// Bit 0: ready.
        status: u8 = 14;
    }
}

/// Optional I/O commands, as [`Controller::io_commands`] has them.
pub mod io_command {
    /// The controller has Compare.
    pub const COMPARE: u16 = 1;
    /// The controller has Dataset Management.
    pub const DATASET: u16 = 1 << 2;
    /// The controller has Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Set Features has the save bit, and Get Features selects values.
    pub const SAVE: u16 = 1 << 4;
    /// The controller has the reservation commands.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// The controller has the timestamp feature.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// The controller has Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// The controller has Copy.
    pub const COPY: u16 = 1 << 8;
}

/// Types of namespace descriptors (Base 5.17.2.3).
pub mod descriptor {
    /// EUI-64, 8 bytes.
    pub const EUI64: u8 = 1;
    /// NGUID, 16 bytes.
    pub const NGUID: u8 = 2;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// Command set, 1 byte.
    pub const COMMAND_SET: u8 = 4;
}
