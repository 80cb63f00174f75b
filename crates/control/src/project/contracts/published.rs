//! What `publish` blocks would publish, as far as the plan shows it: paths, and the fields of their files.

use std::collections::BTreeMap;

use model::base::secret::Secret;
use model::hcl::expression::ExternalQuery;
use model::hcl::expression::Input;
use model::project::config::resolve::{StageValues, resolve};
use model::stage::contract::{Contract, ContractName, PlannedFields, declared_fields};
use model::stage::{ResolvedBlock, StageBlock};
use serde_json::Value;

/// The values known at plan time: planned outputs and the caller's environment.
#[derive(Clone, Copy)]
pub(crate) struct PlannedValues<'a> {
    pub(crate) planned: &'a PlannedFields,
    pub(crate) env: &'a BTreeMap<String, String>,
}

impl StageValues for PlannedValues<'_> {
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

    fn answer(&self, _ask: &ExternalQuery) -> Option<Value> {
        None
    }
}

/// Resolves only these attributes of a block; `None` if the plan does not contain their values.
pub(crate) fn resolve_planned(
    block: &StageBlock,
    attributes: &[&str],
    values: PlannedValues<'_>,
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
    resolve(&trimmed, &values).ok()
}

/// Resolves the block and its sinks, with only the attributes that name them.
pub(crate) fn resolve_planned_sinks(
    block: &StageBlock,
    values: PlannedValues<'_>,
) -> Option<Vec<ResolvedBlock>> {
    let named = |block: &StageBlock| {
        let mut named = block.clone();
        let words = ["path", "name", "namespace"];
        named.attrs.retain(|name, _| words.contains(&name.as_str()));
        named
    };
    let mut trimmed = named(block);
    trimmed.blocks = block.blocks.iter().map(named).collect();
    resolve(&trimmed, &values).ok()
}

/// What all blocks of a stack would publish.
#[derive(Debug)]
pub(super) struct PlannedPublication {
    /// `None` if one of them is not known yet.
    pub(super) paths: Option<Vec<String>>,
    /// The fields of all files together; `None` if those of one file are not known.
    pub(super) fields: Option<PlannedFields>,
}

impl PlannedPublication {
    /// `contract` looks up a contract by name.
    pub(super) fn by(
        blocks: &[StageBlock],
        values: PlannedValues<'_>,
        contract: impl Fn(&ContractName) -> Option<Contract>,
    ) -> Self {
        let mut paths = Some(Vec::new());
        let mut fields = Some(PlannedFields::default());
        for block in blocks {
            let known = resolve_planned(block, &["path"], values).and_then(|blocks| {
                let path = |one: &ResolvedBlock| Some(one.attrs.get("path")?.as_str()?.to_owned());
                blocks.iter().map(path).collect::<Option<Vec<_>>>()
            });
            paths = paths.zip(known).map(|(mut all, more)| {
                all.extend(more);
                all
            });
            let more = fields_of(block, values, &contract);
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

/// The fields of each file that a block publishes.
fn fields_of(
    block: &StageBlock,
    values: PlannedValues<'_>,
    contract: &impl Fn(&ContractName) -> Option<Contract>,
) -> Option<Vec<PlannedFields>> {
    if let Some(written) = block.attrs.get("values") {
        let Some(resolved) = resolve_planned(block, &["values"], values) else {
            return declared_fields(written).map(|fields| vec![fields]);
        };
        let fields = resolved.into_iter().map(|mut one| {
            let Some(Value::Object(fields)) = one.attrs.remove("values") else {
                return None;
            };
            Some(PlannedFields {
                fields,
                ..PlannedFields::default()
            })
        });
        return fields.collect();
    }
    let planned = values.planned;
    let names = contracts_of(block, values)?;
    let of_contract = |(name, _): &(ContractName, Vec<String>)| {
        let contract = contract(name)?;
        let mut picked = PlannedFields::default();
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

/// The contracts that a block names, with the fields that may be missing; `None` if they are not known yet.
pub(super) fn contracts_of(
    block: &StageBlock,
    values: PlannedValues<'_>,
) -> Option<Vec<(ContractName, Vec<String>)>> {
    let wanted = ["contract", "partial"];
    let is_known = |name: &&str| matches!(block.attrs.get(*name), None | Some(Input::Known(_)));
    // Literal attributes do not depend on `for_each`.
    let each = if wanted.iter().all(is_known) {
        None
    } else {
        block.for_each.clone()
    };
    let block = StageBlock {
        for_each: each,
        ..block.clone()
    };
    let resolved = resolve_planned(&block, &wanted, values)?;
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
