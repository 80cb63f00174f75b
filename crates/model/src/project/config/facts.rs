//! Reads `facts` blocks.

use crate::project::config::project::OuterBlock;
use crate::project::config::reader::{Reader, Scope};
use crate::stage::facts::{BranchOwnership, FactsBranch, SensitiveFacts};

pub(crate) fn read_facts(
    reader: &mut Reader<'_>,
    item: OuterBlock<'_>,
    scope: &Scope,
) -> FactsBranch {
    let fields = reader.fields(item.source, item.block, item.spec, scope);
    let input = |name: &str| {
        let field = fields.get(name)?;
        Some(field.input(item.source, &scope.names))
    };
    FactsBranch {
        name: item.name().to_owned(),
        repository: input("repository"),
        branch: input("branch"),
        owns: match fields.text("owns") {
            Some("paths") => BranchOwnership::Paths,
            _ => BranchOwnership::Branch,
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
