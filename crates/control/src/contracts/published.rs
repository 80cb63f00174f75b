//! What `publish` blocks would publish, as far as a plan tells it: paths, and the fields of their files.

use std::collections::BTreeMap;

use model::config::resolve::{StageValues, resolve};
use model::contract::{Contract, ContractName, Planned, declared_fields};
use model::project::Input;
use model::secret::Secret;
use model::stage::{Ask, ResolvedBlock, StageBlock};
use serde_json::Value;

/// Outputs as a plan foretells them, and the asker's environment; nothing else is known yet.
#[derive(Clone, Copy)]
pub(crate) struct Foretold<'a> {
    pub(crate) planned: &'a Planned,
    pub(crate) env: &'a BTreeMap<String, String>,
}

impl StageValues for Foretold<'_> {
    fn output(&self, key: &str) -> Option<(Value, bool)> {
        let value = self.planned.fields.get(key)?;
        if self.planned.leaves_open(key) {
            return None;
        }
        Some((value.clone(), self.planned.sensitive.contains(key)))
    }

    fn resource(&self, _address: &str) -> Option<(Value, bool)> {
        None
    }

    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn secret(&self, _reference: &str) -> Option<Secret> {
        None
    }

    fn answer(&self, _ask: &Ask) -> Option<Value> {
        None
    }
}

/// The block with only these attributes, resolved if the plan tells enough.
pub(crate) fn foretell(
    block: &StageBlock,
    attributes: &[&str],
    foretold: Foretold<'_>,
) -> Option<Vec<ResolvedBlock>> {
    let attrs = block.attrs.iter();
    let kept = attrs.filter(|(name, _)| attributes.contains(&name.as_str()));
    let trimmed = StageBlock {
        attrs: kept
            .map(|(name, input)| (name.clone(), input.clone()))
            .collect(),
        blocks: Vec::new(),
        ..block.clone()
    };
    resolve(&trimmed, &foretold).ok()
}

/// The same for what names the sinks of a block.
pub(crate) fn foretell_sinks(
    block: &StageBlock,
    foretold: Foretold<'_>,
) -> Option<Vec<ResolvedBlock>> {
    let named = |block: &StageBlock| {
        let mut named = block.clone();
        let words = ["path", "name", "namespace"];
        named.attrs.retain(|name, _| words.contains(&name.as_str()));
        named
    };
    let mut trimmed = named(block);
    trimmed.blocks = block.blocks.iter().map(named).collect();
    resolve(&trimmed, &foretold).ok()
}

/// What all blocks of a stack would publish.
#[derive(Debug)]
pub(super) struct WouldPublish {
    /// None: one of them is not known yet.
    pub(super) paths: Option<Vec<String>>,
    /// The fields of all files together; none: those of one are not known.
    pub(super) fields: Option<Planned>,
}

impl WouldPublish {
    /// `contract` finds the contract of a name.
    pub(super) fn by(
        blocks: &[StageBlock],
        foretold: Foretold<'_>,
        contract: impl Fn(&ContractName) -> Option<Contract>,
    ) -> Self {
        let mut paths = Some(Vec::new());
        let mut fields = Some(Planned::default());
        for block in blocks {
            let known = foretell(block, &["path"], foretold).and_then(|blocks| {
                let path = |one: &ResolvedBlock| Some(one.attrs.get("path")?.as_str()?.to_owned());
                blocks.iter().map(path).collect::<Option<Vec<_>>>()
            });
            paths = paths.zip(known).map(|(mut all, more)| {
                all.extend(more);
                all
            });
            let more = fields_of(block, foretold, &contract);
            fields = fields.zip(more).map(|(mut all, more)| {
                for one in more {
                    all.add(one);
                }
                all
            });
        }
        Self { paths, fields }
    }
}

/// The fields of each file that a block stands for.
fn fields_of(
    block: &StageBlock,
    foretold: Foretold<'_>,
    contract: &impl Fn(&ContractName) -> Option<Contract>,
) -> Option<Vec<Planned>> {
    if let Some(values) = block.attrs.get("values") {
        let Some(resolved) = foretell(block, &["values"], foretold) else {
            return declared_fields(values).map(|fields| vec![fields]);
        };
        let fields = resolved.into_iter().map(|mut one| {
            let Some(Value::Object(fields)) = one.attrs.remove("values") else {
                return None;
            };
            Some(Planned {
                fields,
                ..Planned::default()
            })
        });
        return fields.collect();
    }
    let planned = foretold.planned;
    let names = contracts_of(block, foretold)?;
    let of_contract = |(name, _): &(ContractName, Vec<String>)| {
        let contract = contract(name)?;
        let mut picked = Planned::default();
        for field in contract.fields() {
            if let Some(value) = planned.fields.get(field) {
                picked.fields.insert(field.to_owned(), value.clone());
            }
        }
        picked.unknown.clone_from(&planned.unknown);
        Some(picked)
    };
    names.iter().map(of_contract).collect()
}

/// The contracts that a block names, with what may be missing; none if that is not known yet.
pub(super) fn contracts_of(
    block: &StageBlock,
    foretold: Foretold<'_>,
) -> Option<Vec<(ContractName, Vec<String>)>> {
    let wanted = ["contract", "partial"];
    let is_known = |name: &&str| matches!(block.attrs.get(*name), None | Some(Input::Known(_)));
    // What the project file says outright hangs on no `for_each`.
    let each = if wanted.iter().all(is_known) {
        None
    } else {
        block.for_each.clone()
    };
    let block = StageBlock {
        for_each: each,
        ..block.clone()
    };
    let resolved = foretell(&block, &wanted, foretold)?;
    let mut found = Vec::new();
    for one in resolved {
        let Some(name) = one.attrs.get("contract").and_then(Value::as_str) else {
            continue;
        };
        let partial = one.attrs.get("partial").and_then(Value::as_array);
        let partial = partial.into_iter().flatten();
        let partial = partial.filter_map(|it| it.as_str().map(str::to_owned));
        found.push((name.parse().ok()?, partial.collect()));
    }
    Some(found)
}
