//! The member list, and the ids that every member computes from the flags.
//!
//! ```text
//! member id  = first 8 bytes (little-endian) of SHA-256("kattu member",  token, its peer URLs ascending)
//! cluster id = the same of                      SHA-256("kattu cluster", token, all member ids ascending)
//! ```
//! Each text is preceded by its length, so that no two lists hash the same bytes. Never 0, which means "no member". An
//! id depends on URLs and token only: a member may change its name, but not its URLs. (etcd does the same with SHA-1.)
//! Knows nothing of: flags, directories.

use super::urls::Url;
use kattu_raft::NodeId;
use kattu_runtime::{Began, Member};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The members, by name, with their peer URLs.
pub(crate) type Roll = BTreeMap<String, Vec<Url>>;

/// Whether a list may have members without a name. etcdctl prints such a list for a running cluster some of whose
/// members have not started yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    Needed,
    MayBeMissing,
}

/// Reads `n1=http://..,n2=http://..`; a repeated name adds a URL. A member without a name is named by its URL.
pub(crate) fn parse_roll(text: &str, names: Names) -> Result<Roll, String> {
    let mut roll = Roll::new();
    let mut seen = BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        let Some((name, url)) = part.split_once('=') else {
            return Err(format!("{part:?}: expected name=http://host:port"));
        };
        if name.is_empty() && names == Names::Needed {
            return Err(format!("{part:?}: the name is missing"));
        }
        let url = Url::parse(url)?;
        if !url.is_reachable() {
            return Err(format!("{url}: members must be reachable; name a host and a port"));
        }
        if !seen.insert(url.authority()) {
            return Err(format!("{url} is named twice"));
        }
        let name = if name.is_empty() { url.to_string() } else { name.to_string() };
        roll.entry(name).or_default().push(url);
    }
    Ok(roll)
}

/// The members with their ids, ascending, and the cluster's id.
pub(crate) fn identify(token: &str, roll: &Roll) -> Result<(Vec<Member>, u64), String> {
    let mut members: Vec<Member> = roll
        .iter()
        .map(|(name, urls)| {
            let mut urls = urls.clone();
            urls.sort_unstable_by_key(Url::to_string);
            let texts: Vec<String> = urls.iter().map(Url::to_string).collect();
            Member { id: NodeId(hash("kattu member", token, &texts)), name: name.clone(), peer_urls: texts }
        })
        .collect();
    members.sort_unstable_by_key(|member| member.id);
    if let Some(pair) = members.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(format!("{} and {} get the same id; change the token", pair[0].name, pair[1].name));
    }
    let ids: Vec<String> = members.iter().map(|member| format!("{:016x}", member.id.0)).collect();
    Ok((members, hash("kattu cluster", token, &ids)))
}

/// The ids of the cluster and of one member, computed with http:// URLs and with https:// ones. Flags have the URLs of
/// now; a directory keeps the ids of its first start.
pub(crate) fn names_before(token: &str, roll: &Roll, own: &str) -> Vec<Began> {
    let began = |in_tls| {
        let urls = |urls: &Vec<Url>| urls.iter().map(|url| url.clone().with_tls(in_tls)).collect();
        let roll: Roll = roll.iter().map(|(name, its)| (name.clone(), urls(its))).collect();
        let (members, cluster) = identify(token, &roll).ok()?;
        let id = members.iter().find(|member| member.name == own)?.id;
        Some(Began { cluster, id, members })
    };
    [false, true].into_iter().filter_map(began).collect()
}

fn hash(what: &str, token: &str, texts: &[String]) -> u64 {
    let mut hasher = Sha256::new();
    for text in [what, token].into_iter().chain(texts.iter().map(String::as_str)) {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    let digest = hasher.finalize();
    let first: [u8; 8] = digest[..8].try_into().expect("a digest has 32 bytes");
    u64::from_le_bytes(first).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_comes_again_adds_a_url() {
        let roll = parse_roll("n2=http://b:1, n1=http://a:1,n1=http://a:2", Names::Needed).unwrap();
        assert_eq!(roll.keys().collect::<Vec<_>>(), ["n1", "n2"]);
        assert_eq!(roll["n1"].len(), 2);
    }

    #[test]
    fn a_member_that_has_not_started_yet_has_no_name_in_a_cluster_that_runs() {
        let roll = parse_roll("n1=http://a:1,=http://b:1,=http://c:1", Names::MayBeMissing).unwrap();
        assert_eq!(roll.keys().collect::<Vec<_>>(), ["http://b:1", "http://c:1", "n1"]);
    }

    #[test]
    fn a_wrong_roll_is_refused_with_the_part_that_is_wrong() {
        for (text, why) in [
            ("", "expected name="),
            ("http://a:1", "expected name="),
            ("=http://a:1", "name is missing"),
            ("n1=a:1", "expected http"),
            ("n1=http://a:1,n2=http://a:1", "named twice"),
            ("n1=http://a:1,n1=http://a:1", "named twice"),
            ("n1=http://0.0.0.0:1", "reachable"),
            ("n1=http://a:1,", "expected name="),
        ] {
            let error = parse_roll(text, Names::Needed).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn ids_depend_on_token_and_urls_and_on_nothing_else() {
        let ids = |token, text| {
            let (members, cluster) = identify(token, &parse_roll(text, Names::Needed).unwrap()).unwrap();
            (members.iter().map(|member| member.id.0).collect::<Vec<_>>(), cluster)
        };
        let base = ids("t", "n1=http://a:1,n1=http://a:2,n2=http://b:1");
        assert_eq!(ids("t", "n2=http://b:1,n1=http://a:2,n1=http://a:1"), base, "order does not matter");
        assert_eq!(ids("t", "x=http://b:1,y=http://a:2,y=http://a:1"), base, "names do not matter");
        let other_token = ids("u", "n1=http://a:1,n1=http://a:2,n2=http://b:1");
        assert!(other_token.0 != base.0 && other_token.1 != base.1);
        assert_ne!(ids("t", "n1=http://a:1,n2=http://b:1").1, base.1);
        assert!(base.0.is_sorted() && !base.0.contains(&0) && base.1 != 0);
    }

    #[test]
    fn ids_never_change_from_version_to_version() {
        let (members, cluster) =
            identify("etcd-cluster", &parse_roll("default=http://localhost:2380", Names::Needed).unwrap())
                .unwrap();
        assert_eq!((members[0].id.0, cluster), (0x57f4_0fb0_83c7_9c31, 0xf8ca_840b_a0cb_9cf5));
    }
}
