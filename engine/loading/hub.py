"""Fetches a model from the Hugging Face hub into Hugging Face's own cache.

Invariant: only configuration, tokenizer, template and safetensors files are fetched, never code.
"""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

from decoding.errors import ModelLoadError

_CONFIGURATION = ("*.json", "*.jinja")
_WEIGHTS = ("*.safetensors",)


def fetch_from_hub(repository: str, *, weights: bool) -> Path:
    """Directory of the repository's files; raises ModelLoadError where it cannot be fetched."""
    patterns = [*_CONFIGURATION, *(_WEIGHTS if weights else ())]
    try:
        return Path(snapshot_download(repository, allow_patterns=patterns))
    except GatedRepoError as error:
        raise ModelLoadError(f"{repository} asks for consent: accept its terms on the hub and set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise ModelLoadError(
            f"the hub has no model {repository!r} that HF_TOKEN may see; check the name, or give a local directory"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelLoadError(
            f"{repository} is not in Hugging Face's cache and the hub cannot be reached ({error}); "
            "start with --model and a local directory, or set HF_ENDPOINT to a mirror"
        ) from error
