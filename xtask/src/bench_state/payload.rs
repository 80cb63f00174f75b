//! A state as an engine posts it, of any size. Each next one has a new serial and one changed attribute.

use std::fmt::Write as _;

/// Ten digits from the start, so that the next serial can be written in place.
const FIRST_SERIAL: u64 = 1_000_000_000;

pub(crate) struct Payload {
    bytes: Vec<u8>,
    serial: u64,
    serial_at: usize,
    value_at: usize,
}

impl Payload {
    pub(crate) fn new(resources: usize, number: usize) -> Self {
        let mut text = String::from(
            "{\n  \"version\": 4,\n  \"terraform_version\": \"1.11.4\",\n  \"serial\": ",
        );
        let serial_at = text.len();
        let _ = write!(
            text,
            "{FIRST_SERIAL},\n  \"lineage\": \"00000000-0000-4000-8000-{number:012}\",\n  \"outputs\": {{}},\n  \"resources\": ["
        );
        let mut value_at = 0;
        for index in 0..resources {
            if index > 0 {
                text.push(',');
            }
            let _ = write!(
                text,
                "\n    {{\n      \"mode\": \"managed\",\n      \"type\": \"terraform_data\",\n      \"name\": \"item_{index}\",\n      \
                 \"provider\": \"provider[\\\"terraform.io/builtin/terraform\\\"]\",\n      \"instances\": [\n        {{\n          \
                 \"schema_version\": 0,\n          \"attributes\": {{\n            \"id\": \"{:032x}\",\n            \"input\": \"",
                (index as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
            );
            if index == resources / 2 {
                value_at = text.len();
            }
            let _ = write!(
                text,
                "{:016x}\",\n            \"output\": null,\n            \"triggers_replace\": null\n          }},\n          \
                 \"sensitive_attributes\": []\n        }}\n      ]\n    }}",
                (index as u64 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            );
        }
        text.push_str("\n  ],\n  \"check_results\": null\n}\n");
        Self {
            bytes: text.into_bytes(),
            serial: FIRST_SERIAL,
            serial_at,
            value_at,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn next(&mut self) -> &[u8] {
        self.serial += 1;
        let serial = self.serial.to_string();
        self.bytes[self.serial_at..self.serial_at + serial.len()]
            .copy_from_slice(serial.as_bytes());
        let value = format!("{:016x}", self.serial.wrapping_mul(0xd134_2543_de82_ef95));
        self.bytes[self.value_at..self.value_at + value.len()].copy_from_slice(value.as_bytes());
        &self.bytes
    }
}
