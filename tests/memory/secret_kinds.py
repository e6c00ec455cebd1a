"""Kinds of secrets, made up from their prefix and seeded random characters, so that no scanner reports this file.

`KINDS` lists the name of the setting that holds each secret, and the secret as a template: `<hex:32>` stands for 32
random characters of that alphabet.
"""

import random
import re
import string

ALPHABETS = {
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "lower": string.ascii_lowercase + string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "letters": string.ascii_letters,
    "alnum": string.ascii_letters + string.digits,
    "word": string.ascii_letters + string.digits + "_-",
    "base64": string.ascii_letters + string.digits + "+/",
    "digits": string.digits,
    "bech32": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "aws": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
}
UUID = "<hex:8>-<hex:4>-4<hex:3>-a<hex:3>-<hex:12>"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJ<alnum:60>.<word:43>"

KINDS = {
    "AWS access key id": ("AWS_ACCESS_KEY", "AK" + "IA<aws:16>"),
    "AWS secret access key": ("AWS_SECRET_ACCESS_KEY", "<base64:40>"),
    "AWS Bedrock key": ("AWS_BEARER_TOKEN_BEDROCK", "AB" + "SK<base64:128>"),
    "Google API key": ("GOOGLE_API_KEY", "AI" + "za<word:35>"),
    "Google OAuth secret": ("GOOGLE_CLIENT_SECRET", "GOC" + "SPX-<word:28>"),
    "Azure client secret": ("AZURE_CLIENT_SECRET", "<alnum:3>8Q~<alnum:34>"),
    "Azure storage key": ("AZURE_STORAGE_ACCOUNT_KEY", "<base64:86>=="),
    "Alibaba key": ("ALIBABA_ACCESS_KEY", "LT" + "AI<alnum:20>"),
    "DigitalOcean token": ("DIGITALOCEAN_TOKEN", "dop" + "_v1_<hex:64>"),
    "Heroku key": ("HEROKU_API_KEY", UUID),
    "Heroku key, new": ("HEROKU_API_KEY", "HR" + "KU-AA<word:58>"),
    "Cloudflare token": ("CLOUDFLARE_API_TOKEN", "<word:40>"),
    "Cloudflare global key": ("CLOUDFLARE_API_KEY", "<hex:37>"),
    "Fly token": ("FLY_API_TOKEN", "fm" + "2_<base64:120>"),
    "Fly organization token": ("FLY_API_TOKEN", "fo" + "1_<word:43>"),
    "Vercel token": ("VERCEL_TOKEN", "vcp" + "_<alnum:52>"),
    "Netlify token": ("NETLIFY_AUTH_TOKEN", "nfp" + "_<alnum:40>"),
    "GitHub token": ("GITHUB_TOKEN", "gh" + "p_<alnum:36>"),
    "GitHub fine-grained token": ("GITHUB_TOKEN", "github" + "_pat_<alnum:22>_<alnum:59>"),
    "GitLab token": ("GITLAB_TOKEN", "gl" + "pat-<word:20>"),
    "Atlassian token": ("JIRA_API_TOKEN", "AT" + "ATT3<word:186>"),
    "Bitbucket password": ("BITBUCKET_APP_PASSWORD", "AT" + "BB<alnum:32>"),
    "Sourcegraph token": ("SRC_ACCESS_TOKEN", "sg" + "p_<hex:40>"),
    "CircleCI token": ("CIRCLE_TOKEN", "CCI" + "PAT_<alnum:22>_<hex:40>"),
    "npm token": ("NPM_TOKEN", "np" + "m_<alnum:36>"),
    "PyPI token": ("TWINE_PASSWORD", "py" + "pi-AgEIcHlwaS5vcmc<word:120>"),
    "RubyGems key": ("GEM_HOST_API_KEY", "ruby" + "gems_<hex:48>"),
    "Docker token": ("DOCKER_TOKEN", "dckr" + "_pat_<word:27>"),
    "OpenAI key": ("OPENAI_API_KEY", "sk-" + "proj-<word:74>T3Blbk" + "FJ<word:74>"),
    "OpenAI key, old": ("OPENAI_API_KEY", "sk-" + "<alnum:20>T3Blbk" + "FJ<alnum:20>"),
    "Anthropic key": ("ANTHROPIC_API_KEY", "sk-" + "ant-api03-<word:93>AA"),
    "OpenRouter key": ("OPENROUTER_API_KEY", "sk-" + "or-v1-<hex:64>"),
    "Hugging Face token": ("HF_TOKEN", "h" + "f_<letters:34>"),
    "LangSmith key": ("LANGSMITH_API_KEY", "lsv2" + "_pt_<hex:32>_<hex:10>"),
    "Groq key": ("GROQ_API_KEY", "gs" + "k_<alnum:52>"),
    "xAI key": ("XAI_API_KEY", "xa" + "i-<alnum:80>"),
    "Perplexity key": ("PERPLEXITY_API_KEY", "pp" + "lx-<alnum:48>"),
    "Mistral key": ("MISTRAL_API_KEY", "<alnum:32>"),
    "Replicate token": ("REPLICATE_API_TOKEN", "r" + "8_<alnum:37>"),
    "Databricks token": ("DATABRICKS_TOKEN", "da" + "pi<hex:32>"),
    "PlanetScale token": ("PLANETSCALE_SERVICE_TOKEN", "pscale" + "_tkn_<word:43>"),
    "PlanetScale password": ("DATABASE_PASSWORD", "pscale" + "_pw_<word:43>"),
    "Supabase key": ("SUPABASE_ACCESS_TOKEN", "sb" + "p_<hex:40>"),
    "Airtable token": ("AIRTABLE_API_KEY", "pa" + "t<alnum:14>.<hex:64>"),
    "PostHog key": ("POSTHOG_API_KEY", "ph" + "x_<alnum:43>"),
    "Vault token": ("VAULT_TOKEN", "hv" + "s.<word:90>"),
    "Terraform token": ("TF_API_TOKEN", "<alnum:14>.atlas" + "v1.<word:67>"),
    "Pulumi token": ("PULUMI_ACCESS_TOKEN", "pu" + "l-<hex:40>"),
    "Doppler token": ("DOPPLER_TOKEN", "dp" + ".pt.<alnum:43>"),
    "Tailscale key": ("TAILSCALE_AUTH_KEY", "ts" + "key-auth-<alnum:11>CNTRL-<alnum:32>"),
    "1Password token": ("OP_SERVICE_ACCOUNT_TOKEN", "op" + "s_eyJ<base64:250>"),
    "1Password secret key": (
        "OP_SECRET_KEY",
        "A" + "3-<upper:6>-<upper:6>-<upper:5>-<upper:5>-<upper:5>-<upper:5>",
    ),
    "age key": ("AGE_SECRET_KEY", "AGE-" + "SECRET-KEY-1<bech32:58>"),
    "New Relic user key": ("NEW_RELIC_API_KEY", "NR" + "AK-<upper:27>"),
    "New Relic license key": ("NEW_RELIC_LICENSE_KEY", "<hex:36>NRAL"),
    "Grafana token": ("GRAFANA_TOKEN", "gl" + "sa_<alnum:32>_<hex:8>"),
    "Sentry token": ("SENTRY_AUTH_TOKEN", "sntr" + "yu_<hex:64>"),
    "Datadog API key": ("DD_API_KEY", "<hex:32>"),
    "Datadog application key": ("DD_APP_KEY", "<hex:40>"),
    "Dynatrace token": ("DT_API_TOKEN", "dt" + "0c01.<upper:24>.<upper:64>"),
    "Postman key": ("POSTMAN_API_KEY", "PM" + "AK-<hex:24>-<hex:34>"),
    "Snyk token": ("SNYK_API_KEY", UUID),
    "Slack bot token": ("SLACK_BOT_TOKEN", "xo" + "xb-<digits:12>-<digits:13>-<alnum:24>"),
    "Slack app token": ("SLACK_APP_TOKEN", "xa" + "pp-1-<upper:11>-<digits:13>-<hex:64>"),
    "Discord token": ("DISCORD_TOKEN", "MT<alnum:22>.G<alnum:5>.<word:38>"),
    "Telegram token": ("TELEGRAM_BOT_TOKEN", "<digits:10>:AA<word:33>"),
    "SendGrid key": ("SENDGRID_API_KEY", "S" + "G.<word:22>.<word:43>"),
    "Twilio auth token": ("TWILIO_AUTH_TOKEN", "<hex:32>"),
    "Twilio key": ("TWILIO_API_KEY", "S" + "K<hex:32>"),
    "Mailgun key": ("MAILGUN_API_KEY", "ke" + "y-<hex:32>"),
    "Mailchimp key": ("MAILCHIMP_API_KEY", "<hex:32>-us12"),
    "Stripe key": ("STRIPE_SECRET_KEY", "sk" + "_live_<alnum:24>"),
    "Linear key": ("LINEAR_API_KEY", "lin" + "_api_<alnum:40>"),
    "Notion token": ("NOTION_TOKEN", "nt" + "n_<digits:11><alnum:35>"),
    "Figma token": ("FIGMA_ACCESS_TOKEN", "fig" + "d_<word:40>"),
    "Shopify token": ("SHOPIFY_ACCESS_TOKEN", "shp" + "at_<hex:32>"),
    "JWT": ("SERVICE_TOKEN", JWT),
    "RSA private key": (
        "TLS_PRIVATE_KEY",
        "-----BEGIN RSA " + "PRIVATE KEY-----\n<base64:64>\n<base64:64>\n<base64:40>",
    ),
    "SSH private key": (
        "SSH_PRIVATE_KEY",
        "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXk<base64:49>\n<base64:64>",
    ),
    "hexadecimal secret": ("SESSION_SECRET", "<hex:64>"),
    "base64 secret": ("WEBHOOK_SIGNING_KEY", "<base64:43>="),
    "short password": ("DB_PASSWORD", "S<lower:3>r3<letters:1>!9"),
    "password": ("DB_PASS", "<letters:4><digits:2>#<alnum:5>"),
    "long password": ("ADMIN_PASSWORD", "<alnum:24>"),
}


def make_secret(kind: str, seed: int) -> str:
    """Return a made-up secret of a kind."""
    source = random.Random(f"{kind} {seed}")
    return re.sub(
        r"<(\w+):(\d+)>", lambda match: "".join(source.choices(ALPHABETS[match[1]], k=int(match[2]))), KINDS[kind][1]
    )
