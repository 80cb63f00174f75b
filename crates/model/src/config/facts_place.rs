//! Reads `facts` blocks.

use super::project::Item;
use super::reader::{Reader, Scope};
use crate::project::{FactsPlace, Owns, SensitiveFacts};

pub(crate) fn read_facts(reader: &mut Reader<'_>, item: Item<'_>, scope: &Scope) -> FactsPlace {
    let fields = reader.fields(item.source, item.block, item.spec, scope);
    let input = |name: &str| {
        let field = fields.get(name)?;
        Some(field.input(item.source, &scope.names))
    };
    FactsPlace {
        name: item.name().to_owned(),
        repository: input("repository"),
        branch: input("branch"),
        owns: match fields.text("owns") {
            Some("paths") => Owns::Paths,
            _ => Owns::Branch,
        },
        credential: input("credential"),
        sensitive: match fields.text("sensitive") {
            Some("encrypt") => SensitiveFacts::Encrypt,
            Some("reference") => SensitiveFacts::Reference,
            _ => SensitiveFacts::Refuse,
        },
        encrypt_all: fields.text("encrypt") == Some("all"),
        declared_at: item.at(),
    }
}
