r"""Token patterns of providers: prefix, alphabet and length.

A token of a known pattern is a secret wherever it is. The table covers the providers that the well-kept rule sets of
secret scanners list, but contains patterns only: a token that has no prefix of its own is found by its name instead.

`re` scans fast for one literal character and slowly for a class or a string. So each row has a pivot, one character of
its prefix, and all rows with the same pivot form one regex. That regex starts with the pivot, checks the prefix before
it by lookbehind, and then matches the rest.
"""

from typing import NamedTuple


class SecretPattern(NamedTuple):
    """Token pattern of one provider."""

    kind: str
    leads: str
    """Prefixes, separated by spaces. The last character of each, the pivot, should be rare in texts or unique here."""
    tail: str
    """Regex for the text after the prefix."""
    head: str = ""
    """Regex for the part of the token before the prefix."""


PEM_PATTERN = (
    r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    # An encrypted key has header fields before its first line, and tools may insert text between lines.
    r"(?:(?!-----)[\s\S]){0,200}?[A-Za-z0-9+/]{24,}+(?:[^-]{0,40}?[A-Za-z0-9+/]{24,}+)*+=*+"
    r"(?:[^-]{0,80}-----END[ A-Z0-9]{0,40}-----|(?:\s|\\[nr]){1,4}[A-Za-z0-9+/]{1,23}+=*+)?+"
)
UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

_CLOUDS = (
    SecretPattern("aws-access-key", "A", r"KIA[A-Z2-7]{16}(?![A-Za-z0-9])"),
    SecretPattern("aws-access-key", "ASIA ABIA ACCA", r"[A-Z2-7]{16}(?![A-Za-z0-9])"),
    SecretPattern("aws-bedrock-key", "A", r"BSK[0-9A-Za-z+/]{100,200}={0,2}"),
    SecretPattern("google-api-key", "A", r"Iza[\w-]{35}(?![\w-])"),
    SecretPattern("google-oauth", "GOCSPX-", r"[\w-]{28}"),
    SecretPattern("google-oauth", "ya29.", r"[\w-]{30,1000}"),
    SecretPattern("azure-secret", "~", r"[\w.~-]{31,34}(?![\w.~-])", head=r"\w{3}\dQ"),
    SecretPattern("alibaba-key", "LTA", r"I[0-9A-Za-z]{20}(?![0-9A-Za-z])"),
    SecretPattern("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{64}"),
    SecretPattern("heroku-key", "HRKU-", r"AA[\w-]{58}"),
    SecretPattern("cloudflare-key", "v1.0-", r"[0-9a-f]{24}-[0-9a-f]{146}"),
    SecretPattern("fly-token", "fo1_", r"[\w-]{43}"),
    SecretPattern("fly-token", "fm1a_ fm1r_ fm2_", r"[0-9A-Za-z+/]{100,2000}={0,3}"),
    SecretPattern("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", r"[0-9A-Za-z]{24,80}"),
    SecretPattern("netlify-token", "nfp_ nfc_ nfu_ nfo_", r"[0-9A-Za-z]{36,60}"),
    SecretPattern("render-key", "rnd_", r"[0-9A-Za-z]{32}(?![\w])"),
    SecretPattern("scalingo-token", "tk-us-", r"[\w-]{48}"),
    SecretPattern("openshift-token", "~", r"[\w-]{43}(?![\w-])", head="sha256"),
)
_CODE_HOSTS = (
    SecretPattern("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[0-9A-Za-z]{36,255}"),
    SecretPattern("github-token", "github_pat_", r"[\w]{60,255}"),
    SecretPattern(
        "gitlab-token",
        "glpat- gldt- glrt- glft- glsoat- glffct- glimt- glagent- gloas-",
        r"[\w-]{20,300}(?:\.[\w]{9})?",
    ),
    SecretPattern("gitlab-token", "glptt-", r"[0-9a-f]{40}"),
    SecretPattern("gitlab-token", "glcbt-", r"[0-9A-Za-z]{1,5}_[\w-]{20,300}"),
    SecretPattern("atlassian-token", "A", r"TATT3[\w=-]{180,200}"),
    SecretPattern("atlassian-token", "A", r"TCTT3[\w=-]{60,250}"),
    SecretPattern("bitbucket-password", "A", r"TBB[0-9A-Za-z]{32}(?![\w])"),
    SecretPattern("sourcegraph-token", "sgp_", r"(?:(?:[0-9a-fA-F]{16}|local)_)?[0-9a-fA-F]{40}"),
    SecretPattern("circleci-token", "CCIPAT_ CCIPRJ_", r"[\w-]{16,80}"),
    SecretPattern("buildkite-token", "bkua_ bkaj_ bkct_", r"[0-9A-Za-z_]{32,80}"),
    SecretPattern("octopus-key", "API-", r"[A-Z0-9]{26}(?![0-9A-Za-z])"),
    SecretPattern("harness-token", "pat. sat.", r"[\w-]{22}\.[0-9a-zA-Z]{24}\.[0-9a-zA-Z]{20}"),
    SecretPattern("sonar-token", "squ_ sqp_ sqa_", r"[0-9a-f]{40}"),
    SecretPattern("snyk-token", "snyk_uat. snyk_sat.", r"[\w.-]{40,300}"),
    SecretPattern("artifactory-key", "A", r"KCp[0-9A-Za-z]{69}"),
)
_PACKAGES = (
    SecretPattern("npm-token", "npm_", r"[0-9A-Za-z]{36}(?![0-9A-Za-z])"),
    SecretPattern("pypi-token", "pypi-", r"AgE[\w-]{50,1000}"),
    SecretPattern("rubygems-key", "rubygems_", r"[0-9a-f]{48}"),
    SecretPattern("docker-token", "dckr_pat_ dckr_oat_", r"[\w-]{27,40}"),
    SecretPattern("clojars-token", "CLOJARS_", r"[0-9a-f]{60}"),
)
_MODELS = (
    SecretPattern("anthropic-key", "sk-ant-", r"(?:[a-z]{2,8}\d{2}-)?[\w-]{40,200}"),
    SecretPattern("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", r"[\w-]{40,300}"),
    SecretPattern("openrouter-key", "sk-or-", r"v1-[0-9a-f]{40,100}"),
    SecretPattern("langfuse-key", "sk-lf-", UUID),
    SecretPattern("openai-key", "sk-", r"[0-9A-Za-z]{32,100}(?![\w-])"),
    SecretPattern("langsmith-key", "lsv2_pt_ lsv2_sk_", r"[0-9a-f]{32}_[0-9a-f]{10}"),
    SecretPattern("langsmith-key", "ls__", r"[0-9a-f]{32}(?![\w])"),
    SecretPattern("huggingface-token", "hf_ api_org_", r"[0-9A-Za-z]{30,60}(?![\w])"),
    SecretPattern("groq-key", "gsk_", r"[0-9A-Za-z]{48,60}"),
    SecretPattern("xai-key", "xai-", r"[0-9A-Za-z]{70,90}"),
    SecretPattern("perplexity-key", "pplx-", r"[0-9A-Za-z]{48}"),
    SecretPattern("nvidia-key", "nvapi-", r"[\w-]{60,70}"),
    SecretPattern("replicate-token", "r8_", r"[0-9A-Za-z]{37}"),
    SecretPattern("elevenlabs-key", "sk_", r"[0-9a-f]{48}(?![\w])"),
    SecretPattern("pinecone-key", "pcsk_", r"[0-9A-Za-z]{4,8}_[0-9A-Za-z]{40,80}"),
    SecretPattern("together-key", "tgp_v1_", r"[\w-]{40,60}"),
    SecretPattern("fireworks-key", "fw_", r"[0-9A-Za-z]{22,32}(?![\w])"),
    SecretPattern("tavily-key", "tvly-", r"(?:dev-|prod-)?[0-9A-Za-z]{32}(?![\w])"),
    SecretPattern("cerebras-key", "csk-", r"[0-9a-z]{40,60}"),
    SecretPattern("e2b-key", "e2b_", r"[0-9a-f]{40}"),
)
_DATA = (
    SecretPattern("databricks-token", "dapi", r"[0-9a-f]{32}(?:-\d)?(?![\w])"),
    SecretPattern("planetscale-token", "pscale_tkn_ pscale_oauth_ pscale_pw_", r"[\w=.-]{32,64}"),
    SecretPattern("supabase-key", "sbp_", r"[0-9a-f]{40}"),
    SecretPattern("supabase-key", "sb_secret_", r"[\w-]{20,60}"),
    SecretPattern("neon-key", "napi_", r"[0-9a-z]{60,80}"),
    SecretPattern("airtable-token", ".", r"(?=[0-9a-f]{64}(?![\w]))(?<=pat.{14}\.)[0-9a-f]{64}", head=r"pat[\w]{14}"),
    SecretPattern("posthog-key", "phx_ phc_ phs_ pha_ phr_", r"[0-9A-Za-z]{40,60}(?![\w])"),
    SecretPattern("prefect-key", "pnu_ pnb_", r"[0-9A-Za-z]{36}"),
)
_OPERATIONS = (
    SecretPattern("vault-token", "hvs. hvb. hvr.", r"[\w-]{24,300}"),
    SecretPattern("terraform-token", ".atlasv1.", r"[\w=-]{60,70}", head=r"[0-9A-Za-z]{14}"),
    SecretPattern("pulumi-token", "pul-", r"[0-9a-f]{40}"),
    SecretPattern("doppler-token", "dp.pt. dp.ct. dp.sa. dp.scim. dp.audit.", r"[0-9A-Za-z]{40,44}"),
    SecretPattern("doppler-token", "dp.st.", r"(?:[\w-]{2,35}\.)?[0-9A-Za-z]{40,44}"),
    SecretPattern("tailscale-key", "tskey-", r"[a-z]{2,10}-[0-9A-Za-z]{8,24}-[0-9A-Za-z]{16,64}"),
    SecretPattern("1password-token", "ops_", r"eyJ[\w+/=-]{100,4000}"),
    SecretPattern("1password-key", "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    SecretPattern("age-key", "AGE-SECRET-KEY-", r"1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    SecretPattern("age-key", "AGE-PLUGIN-", r"[A-Z0-9-]{4,30}-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{20,200}"),
    SecretPattern("new-relic-key", "NRAK- NRII- NRAA- NRRA- NRIQ-", r"[\w-]{27,42}(?![\w-])"),
    SecretPattern("new-relic-key", "NRJS-", r"[0-9a-f]{19}(?![\w])"),
    SecretPattern("grafana-token", "glsa_", r"[0-9A-Za-z]{32}_[0-9A-Fa-f]{8}"),
    SecretPattern("grafana-token", "glc_", r"[0-9A-Za-z+/]{32,400}={0,3}"),
    SecretPattern("sentry-token", "sntryu_", r"[0-9a-f]{64}"),
    SecretPattern("sentry-token", "sntrys_", r"eyJ[\w+/=-]{60,500}"),
    SecretPattern("dynatrace-token", "dt0c01. dt0s01. dt0s16.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{64}"),
    SecretPattern("honeycomb-key", "hcaik_ hcxik_ hcbik_ hcxlk_", r"[0-9a-z]{50,64}"),
    SecretPattern("axiom-token", "xaat- xapt-", UUID),
    SecretPattern("launchdarkly-key", "sdk- mob- api-", r"(?<![\w-](?:sdk|mob|api)-)" + UUID),
    SecretPattern("postman-key", "PMAK-", r"[0-9a-fA-F]{24}-[0-9a-fA-F]{34}"),
    SecretPattern("readme-key", "rdme_", r"[0-9a-z]{70}"),
    SecretPattern("infracost-key", "ico-", r"[0-9A-Za-z]{32}(?![\w])"),
    SecretPattern("defined-key", "dnkey-", r"[\w=-]{26}-[\w=-]{52}"),
)
_MESSAGES = (
    SecretPattern("slack-token", "xoxb- xoxp- xoxo- xoxs- xoxa- xoxr- xoxe- xoxc- xoxd-", r"[\w%-]{16,400}"),
    SecretPattern("slack-token", "xapp-", r"\d-[A-Z0-9]{1,40}-\d{1,20}-[a-z0-9]{16,200}"),
    SecretPattern(
        "slack-webhook", ":", r"//hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/]{40,80}", head="https?"
    ),
    SecretPattern("telegram-token", ":", r"AA[\w-]{33}(?![\w-])", head=r"[0-9]{8,10}"),
    SecretPattern(
        "discord-token",
        ".",
        # The lookahead comes first: most periods end a sentence, and the lookbehind is slow.
        r"(?=[\w-]{6}\.)(?:(?<=[MNO].{23}\.)|(?<=[MNO].{25}\.))[\w-]{6}\.[\w-]{27,38}(?![\w.-])",
        head=r"[\w-]{24,26}",
    ),
    SecretPattern("discord-webhook", ":", r"//discord\.com/api/webhooks/\d{17,20}/[\w-]{60,80}", head="https?"),
    SecretPattern("sendgrid-key", "SG.", r"[\w-]{16,32}\.[\w-]{32,64}"),
    SecretPattern("twilio-key", "SK", r"[0-9a-f]{32}(?![\w])"),
    SecretPattern("mailgun-key", "key-", r"(?<![\w-]key-)[0-9a-f]{32}(?![\w-])"),
    SecretPattern("mailchimp-key", "-", r"us\d{1,2}(?![\w-])", head=r"[0-9a-f]{32}"),
    SecretPattern("brevo-key", "xkeysib- xsmtpsib-", r"[0-9a-f]{64}-[0-9A-Za-z]{16}"),
    SecretPattern("resend-key", "re_", r"[0-9A-Za-z]{8}_[0-9A-Za-z]{24}(?![\w])"),
    SecretPattern("hubspot-token", "pat-na1- pat-na2- pat-eu1-", UUID),
)
_PRODUCTS = (
    SecretPattern("stripe-key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", r"[0-9A-Za-z]{16,255}"),
    SecretPattern("webhook-secret", "whsec_", r"[0-9A-Za-z+/=]{24,200}"),
    SecretPattern("linear-key", "lin_api_ lin_oauth_", r"[0-9A-Za-z]{40,64}"),
    SecretPattern("notion-token", "ntn_", r"[0-9A-Za-z]{40,50}"),
    SecretPattern("notion-token", "secret_", r"[0-9A-Za-z]{43}(?![\w])"),
    SecretPattern("figma-token", "figd_ figu_ figo_ figr_", r"[\w-]{38,80}"),
    SecretPattern("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{32}"),
    SecretPattern("square-token", "sq0atp- sq0csp-", r"[\w-]{22,60}"),
    SecretPattern("square-token", "EAAA", r"[\w-]{60}(?![\w+/=-])"),
    SecretPattern("facebook-token", "EAA", r"[MC][0-9A-Za-z]{100,300}"),
    SecretPattern("mapbox-token", "sk.", r"eyJ[\w-]{60,200}\.[\w-]{20,40}"),
    SecretPattern("contentful-token", "CFPAT-", r"[\w-]{43}"),
    SecretPattern("plaid-token", "access-sandbox- access-development- access-production-", UUID),
    SecretPattern("shippo-token", "shippo_live_ shippo_test_", r"[0-9a-fA-F]{40}"),
    SecretPattern("easypost-key", "EZA", r"K[0-9A-Za-z]{54}"),
    SecretPattern("duffel-token", "duffel_live_ duffel_test_", r"[\w=-]{43}"),
    SecretPattern("flutterwave-key", "FLWSECK- FLWSECK_TEST-", r"[0-9a-h]{32}-X"),
    SecretPattern("frameio-token", "fio-u-", r"[\w=-]{64}"),
    SecretPattern("adobe-secret", "p8e-", r"[0-9A-Za-z]{32}(?![\w])"),
)

SECRET_PATTERNS = (
    *_CLOUDS,
    *_CODE_HOSTS,
    *_PACKAGES,
    *_MODELS,
    *_DATA,
    *_OPERATIONS,
    *_MESSAGES,
    *_PRODUCTS,
    SecretPattern(
        "jwt", ".", r"eyJ[\w-]{10,6000}(?:\.[\w-]{1,2000})?", head=r"(?:[\w-]{0,100}[_-])?(eyJ[\w-]{10,2000})"
    ),
)
"""Token patterns by provider. If several match, the first one wins."""
