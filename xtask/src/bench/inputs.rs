//! The step of a shell loop between two engines: turns upstream outputs into a variables file.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

/// Reads `upstreams` and the saved outputs of each, writes `inputs.auto.tfvars.json`.
pub(crate) fn write(stack_dir: &Path) -> io::Result<()> {
    let upstreams = std::fs::read_to_string(stack_dir.join("upstreams"))?;
    let mut variables = Map::new();
    for (slot, upstream) in upstreams.lines().enumerate() {
        let file = stack_dir
            .join("../../outputs")
            .join(format!("{upstream}.json"));
        let outputs: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
        variables.insert(
            format!("upstream_{slot}"),
            outputs["value"]["value"].clone(),
        );
    }
    std::fs::write(
        stack_dir.join("inputs.auto.tfvars.json"),
        serde_json::to_vec(&variables)?,
    )
}
