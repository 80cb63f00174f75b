//! Colours as tags that can be read in a snapshot: `<bold red>error</>`.

/// Replaces each colour sequence by its name.
pub(crate) fn tagged(painted: &str) -> String {
    let mut parts = painted.split("\x1b[");
    let mut tagged = parts.next().unwrap_or_default().to_owned();
    let mut open = false;
    for part in parts {
        let (code, rest) = part.split_once('m').expect("only colours are painted");
        let name = match code {
            "0" => "/",
            "1" => "bold",
            "2" => "faint",
            "31" => "red",
            "32" => "green",
            "33" => "yellow",
            "35" => "magenta",
            "36" => "cyan",
            other => panic!("unknown colour {other}"),
        };
        // Two sequences side by side are one tag.
        if open && tagged.ends_with('>') && name != "/" {
            tagged.pop();
            tagged.push(' ');
        } else {
            tagged.push('<');
        }
        tagged.push_str(name);
        tagged.push('>');
        tagged.push_str(rest);
        open = name != "/" && rest.is_empty();
    }
    tagged
}
