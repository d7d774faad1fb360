//! Files that are renewed, broken, made; the contents of certificates.

use kattu_tls::{Allowed, Leaf, Looked, Policy, Refused, ServerTls, TlsFiles, ensure_self_signed};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

struct Folder(PathBuf);

impl Folder {
    fn new(what: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("kattu-tls-{what}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

fn sign(
    authority: &CertifiedIssuer<'static, KeyPair>,
    names: &[&str],
    common_name: &str,
) -> (String, String) {
    sign_for(DAY * 10, authority, names, common_name)
}

fn sign_for(
    time: Duration,
    authority: &CertifiedIssuer<'static, KeyPair>,
    names: &[&str],
    common_name: &str,
) -> (String, String) {
    let mut params =
        CertificateParams::new(names.iter().map(|it| it.to_string()).collect::<Vec<_>>()).expect("names");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_after = (SystemTime::now() + time).into();
    let key = KeyPair::generate().expect("a key");
    (params.signed_by(&key, authority).expect("signed").pem(), key.serialize_pem())
}

fn files(folder: &Folder, allowed: Allowed) -> TlsFiles {
    let trusted_ca = Some(folder.at("ca"));
    TlsFiles {
        cert: folder.at("cert"),
        key: folder.at("key"),
        trusted_ca,
        crl: None,
        allowed,
        policy: Policy::default(),
        dials: kattu_tls::Dials::Nobody,
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the folder can be written");
}

/// Files that fit.
fn fill(folder: &Folder) -> CertifiedIssuer<'static, KeyPair> {
    let authority = authority();
    let (cert, key) = sign(&authority, &["n1.example", "10.0.0.1", "::1"], "n1");
    write(&folder.at("cert"), &cert);
    write(&folder.at("key"), &key);
    write(&folder.at("ca"), &authority.pem());
    authority
}

#[test]
fn a_certificate_says_until_when_and_for_whom_it_is_good() {
    let folder = Folder::new("leaf");
    fill(&folder);
    let leaf =
        Leaf::of(&CertificateDer::from_pem_file(folder.at("cert")).expect("PEM")).expect("a certificate");
    assert_eq!(leaf.common_name, "n1");
    assert_eq!(leaf.names, ["n1.example", "10.0.0.1", "::1"]);
    let left = leaf.left(SystemTime::now()).expect("it is good");
    assert!(DAY * 9 < left && left <= DAY * 10, "{left:?}");
    assert_eq!(leaf.left(SystemTime::now() + DAY * 11), None);
    assert!(Leaf::of(&CertificateDer::from(vec![0x30, 0x03, 1, 2, 3])).is_err());
}

#[test]
fn new_files_are_taken_when_they_lie_still_and_broken_ones_change_nothing() {
    let folder = Folder::new("renewed");
    let authority = fill(&folder);
    let tls = ServerTls::load(files(&folder, Allowed::default())).expect("they fit");
    assert!(tls.current().is_for("N1.example") && tls.current().is_for("10.0.0.1"));
    assert!(!tls.current().is_for("n2.example"));
    let rejudged = tls.rejudged();
    assert_eq!(tls.look(false), Looked::Same);

    let (cert, key) = sign(&authority, &["n2.example"], "n2");
    write(&folder.at("key"), &key);
    assert_eq!(tls.look(false), Looked::Same, "the certificate may be on its way");
    write(&folder.at("cert"), &cert);
    assert_eq!(tls.look(false), Looked::Same, "it has just changed");
    let Looked::Renewed(leaf) = tls.look(false) else { panic!("they lie still, and fit") };
    assert_eq!(leaf.common_name, "n2");
    assert!(tls.current().is_for("n2.example"));
    assert!(!rejudged.has_changed().expect("it is there"), "the same clients are let in");
    assert_eq!(tls.look(false), Looked::Same);

    write(&folder.at("key"), "no key");
    assert_eq!(tls.look(false), Looked::Same);
    let Looked::Broken(error) = tls.look(false) else { panic!("it is no key") };
    assert!(error.to_string().ends_with("key: no key in PEM is in it"), "{error}");
    assert_eq!((tls.look(false), tls.broken()), (Looked::Same, 1), "it is said once");
    assert!(tls.current().is_for("n2.example"), "what was there stays in force");
    std::fs::remove_file(folder.at("cert")).expect("it is there");
    assert!(matches!(tls.look(true), Looked::Broken(_)), "`at_once` takes them as unchanged");
    write(&folder.at("cert"), &cert);
    write(&folder.at("key"), &key);
    assert!(matches!(tls.look(true), Looked::Renewed(_)));
    write(&folder.at("ca"), &crate::authority().pem());
    assert!(matches!(tls.look(true), Looked::Renewed(_)));
    assert!(rejudged.has_changed().expect("it is there"), "others are let in now");
}

#[test]
fn files_that_were_out_of_reach_for_a_moment_are_taken_when_they_are_back() {
    let folder = Folder::new("away");
    let authority = fill(&folder);
    let tls = ServerTls::load(files(&folder, Allowed::default())).expect("they fit");
    let (cert, key) = sign(&authority, &["n2.example"], "n2");
    write(&folder.at("key"), &key);
    write(&folder.at("cert"), &cert);
    // It is there, and cannot be read: as in a process that may open no more files.
    std::fs::rename(folder.at("ca"), folder.at("ca-away")).expect("it is there");
    std::os::unix::fs::symlink(folder.at("nowhere"), folder.at("ca")).expect("a link");
    assert!(matches!(tls.look(true), Looked::Broken(_)));
    assert!(tls.broken_now().is_some());
    assert_eq!((tls.look(true), tls.look(false), tls.broken()), (Looked::Same, Looked::Same, 1));
    // The target of the link is there again; the state of the link has changed as little as that of the files.
    std::fs::rename(folder.at("ca-away"), folder.at("nowhere")).expect("it is there");
    assert!(matches!(tls.look(true), Looked::Renewed(_)));
    assert_eq!(tls.broken_now(), None);
}

#[test]
fn a_client_that_shows_more_certificates_than_a_way_to_an_authority_has_is_not_looked_at() {
    let folder = Folder::new("many");
    let authority = fill(&folder);
    let one = CertificateDer::from_pem_slice(sign(&authority, &["client.example"], "client").0.as_bytes());
    let one = one.expect("PEM").into_owned();
    let current = ServerTls::load(files(&folder, Allowed::default())).expect("they fit").current();
    let judge = |count: usize| current.judge(Some(&vec![one.clone(); 1 + count]));
    assert_eq!(judge(kattu_tls::INTERMEDIATES_MAX), Ok(()));
    let refused = judge(kattu_tls::INTERMEDIATES_MAX + 1).expect_err("that is one too many");
    assert!(refused.to_string().contains("too many certificates"), "{refused}");
}

#[test]
fn clients_are_judged_by_what_is_in_force_now() {
    let folder = Folder::new("judged");
    let (authority, other) = (fill(&folder), authority());
    let chain = |text: &str| vec![CertificateDer::from_pem_slice(text.as_bytes()).expect("PEM").into_owned()];
    let good = chain(&sign(&authority, &["client.example"], "client").0);
    let stranger = chain(&sign(&other, &["client.example"], "client").0);
    let allowed = |hosts: &[&str], names: &[&str]| Allowed {
        hostnames: hosts.iter().map(|it| it.to_string()).collect(),
        common_names: names.iter().map(|it| it.to_string()).collect(),
    };
    let judge = |allowed, chain: Option<&[CertificateDer<'_>]>| {
        ServerTls::load(files(&folder, allowed)).expect("they fit").current().judge(chain)
    };
    assert_eq!(judge(Allowed::default(), Some(&good)), Ok(()));
    assert_eq!(judge(Allowed::default(), None), Err(Refused::NoCertificate));
    assert_eq!(judge(Allowed::default(), Some(&stranger)), Err(Refused::UnknownAuthority));
    assert_eq!(judge(allowed(&["x.example", "client.example"], &[]), Some(&good)), Ok(()));
    assert_eq!(judge(allowed(&["x.example"], &[]), Some(&good)), Err(Refused::WrongName));
    assert_eq!(judge(allowed(&[], &["client"]), Some(&good)), Ok(()));
    assert_eq!(judge(allowed(&[], &["Client"]), Some(&good)), Err(Refused::WrongName));
    let without = TlsFiles { trusted_ca: None, ..files(&folder, Allowed::default()) };
    assert_eq!(
        ServerTls::load(without).expect("they fit").current().judge(None),
        Ok(()),
        "no certificate is asked for"
    );
}

#[test]
fn a_self_signed_certificate_is_kept_until_it_is_nearly_over_or_for_other_hosts() {
    let folder = Folder::new("auto");
    let made = |hosts: &[&str], days| {
        let hosts: Vec<String> = hosts.iter().map(|it| it.to_string()).collect();
        let files = ensure_self_signed(&folder.at("tls"), "client", &hosts, days).expect("it is made");
        assert!(ServerTls::load(files.clone()).is_ok());
        std::fs::read_to_string(files.cert).expect("it is there")
    };
    let first = made(&["n1.example", "10.0.0.1"], 365);
    assert_eq!(made(&["10.0.0.1"], 365), first);
    assert_ne!(made(&["n2.example"], 365), first, "it is for another host");
    let second = made(&["n2.example"], 365);
    assert_ne!(made(&["n2.example"], 36_500), second, "a tenth of that is longer than it is good");
    use std::os::unix::fs::PermissionsExt;
    for (file, mode) in [("tls", 0o700), ("tls/client.key", 0o600), ("tls/client.crt", 0o600)] {
        let found = std::fs::metadata(folder.at(file)).expect("it is there").permissions().mode();
        assert_eq!(found & 0o777, mode, "{file}");
    }
    assert!(ensure_self_signed(&folder.at("tls"), "x", &["\u{e9}".to_string()], 1).is_err());
}

/// An empty list, by this authority.
fn list(of: &CertifiedIssuer<'static, KeyPair>) -> String {
    let now = SystemTime::now();
    let params = rcgen::CertificateRevocationListParams {
        this_update: (now - DAY).into(),
        next_update: (now + DAY).into(),
        crl_number: rcgen::SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    params.signed_by(of).expect("it is signed").pem().expect("text")
}

#[test]
fn a_revocation_list_that_its_authority_has_not_signed_is_refused_before_use() {
    let folder = Folder::new("lists");
    let authority = fill(&folder);
    let with_list = |text: &str| {
        write(&folder.at("crl"), text);
        let files = files(&folder, Allowed::default());
        ServerTls::load(TlsFiles { crl: Some(folder.at("crl")), ..files }).map(|_| ())
    };
    assert_eq!(with_list(&list(&authority)), Ok(()));
    // The same name, another key: an authority that has begun anew.
    let anew = with_list(&list(&crate::authority())).expect_err("it would refuse all").to_string();
    assert!(anew.contains("has not signed it"), "{anew}");
    // The issuer may be an intermediate: its list cannot be checked.
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "somebody else");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
    let other =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    assert_eq!(with_list(&list(&other)), Ok(()));
}

#[test]
fn of_the_certificates_that_a_member_shows_the_one_that_ends_first_is_told_of() {
    let folder = Folder::new("two");
    let authority = fill(&folder);
    let (cert, key) = (folder.at("dials"), folder.at("dials-key"));
    let put = |(pem, key_pem): (String, String)| {
        write(&cert, &pem);
        write(&key, &key_pem);
    };
    let names = &["n1.example"][..];
    put(sign_for(DAY * 3, &authority, names, "dials"));
    let dials = kattu_tls::Dials::Trusted { shows: Some((cert.clone(), key.clone())) };
    let tls = ServerTls::load(TlsFiles { dials, ..files(&folder, Allowed::default()) }).expect("they fit");
    assert_eq!(
        (tls.current().leaf().common_name.as_str(), tls.current().ends_first().common_name.as_str()),
        ("n1", "dials")
    );

    put(sign_for(DAY * 30, &authority, names, "dials"));
    let Looked::Renewed(leaf) = tls.look(true) else { panic!("it has been renewed") };
    assert_eq!(leaf.common_name, "n1", "the other one ends later now");

    // Other members would refuse this one when it is shown, whatever the port itself shows.
    put(sign_for(DAY * 30, &self::authority(), names, "dials"));
    let Looked::Broken(error) = tls.look(true) else { panic!("its authority is not trusted") };
    assert!(error.what.contains("would be refused by the others"), "{error}");
}
