//! Actors in JSON for programs: by name, as tables show them.

use serde_json::Value;

/// Replaces each stored actor by its name. Only for documents of terrane's own; those of users may look alike.
pub(crate) fn by_name(document: Value) -> Value {
    match document {
        Value::Array(items) => items.into_iter().map(by_name).collect(),
        Value::Object(fields) => {
            let is_actor = fields.len() == 4
                && ["name", "kind", "verified", "via"]
                    .iter()
                    .all(|key| fields.contains_key(*key));
            if let Some(name) = fields.get("name").filter(|_| is_actor) {
                return name.clone();
            }
            let fields = fields.into_iter();
            fields.map(|(key, value)| (key, by_name(value))).collect()
        }
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use model::base::actor::{Actor, ActorKind, Entrance, Verification};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_actor_is_its_name() {
        let actor = Actor {
            name: "deploy".to_owned(),
            kind: ActorKind::Token,
            verified: Verification::Secret,
            via: Entrance::Server,
        };
        let document = json!({ "events": [{ "by": actor, "at": 1 }], "name": "x" });
        let shown = json!({ "events": [{ "by": "deploy", "at": 1 }], "name": "x" });
        assert_eq!(by_name(document), shown);
    }
}
