//! Nodes of an execution trace, by `schema/protobuf/et_def.proto` of mlcommons/chakra.

use super::protobuf::{Reader, Value};

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum NodeType {
    /// Metadata, memory, and what later versions add: it takes its time, and sends nothing.
    #[default]
    Other,
    /// Work of the processor.
    Compute,
    Send,
    Receive,
    Collective,
}

/// A node of a rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub id: u64,
    pub kind: NodeType,
    pub name: String,
    pub control: Vec<u64>,
    pub data: Vec<u64>,
    pub duration_us: u64,
    pub is_cpu: bool,
    /// Proto3 leaves out zeros: what is not there is an all-reduce, and rank 0.
    pub collective: u64,
    pub bytes: u64,
    pub from: u64,
    pub to: u64,
    pub tag: u64,
    pub root: u64,
    pub group: String,
}

impl Node {
    /// Reads a message.
    pub(super) fn read(message: &[u8]) -> Result<Self, &'static str> {
        let mut node = Self::default();
        let mut reader = Reader::of(message);
        while let Some(field) = reader.field()? {
            let number = field.value.number().unwrap_or(0);
            match field.number {
                1 => node.id = number,
                2 => node.name = text(field.value),
                3 => {
                    node.kind = match number {
                        4 => NodeType::Compute,
                        5 => NodeType::Send,
                        6 => NodeType::Receive,
                        7 => NodeType::Collective,
                        _ => NodeType::Other,
                    }
                }
                4 => field.value.numbers(&mut node.control)?,
                5 => field.value.numbers(&mut node.data)?,
                7 => node.duration_us = number,
                10 => node.attribute(field.value.bytes().unwrap_or_default())?,
                _ => {}
            }
        }
        Ok(node)
    }

    /// Name, documentation, and one value, whose field number says its type.
    fn attribute(&mut self, message: &[u8]) -> Result<(), &'static str> {
        let mut reader = Reader::of(message);
        let (mut name, mut value) = (String::new(), None);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => name = text(field.value),
                2 => {}
                // Those of sint32 and sint64 have the sign in the lowest bit.
                15 | 17 => value = field.value.number().map(|it| Value::Number(it >> 1)),
                _ => value = Some(field.value),
            }
        }
        let number = value.and_then(Value::number).unwrap_or(0);
        match &*name {
            "is_cpu_op" => self.is_cpu = number != 0,
            "comm_type" => self.collective = number,
            "comm_size" => self.bytes = number,
            "comm_src" => self.from = number,
            "comm_dst" => self.to = number,
            "comm_tag" => self.tag = number,
            "root" | "comm_root" => self.root = number,
            "pg_name" | "comm_group" => self.group = value.map(text).unwrap_or_default(),
            _ => {}
        }
        Ok(())
    }
}

fn text(value: Value<'_>) -> String {
    match value {
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => other.number().unwrap_or(0).to_string(),
    }
}
