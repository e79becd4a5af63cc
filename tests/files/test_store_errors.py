"""Errors of stores are one line: the store, the fault, what to set, and the URL without secrets."""

import pytest

from wirescan.files.store_errors import convert_error, make_no_bucket_error

URL = "s3://me:hidden@bucket/a.log?secret_key=hidden"
SHOWN = "s3://bucket/a.log"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            (
                "When reading information for key 'a.log' in bucket 'bucket': AWS Error "
                "SIGNATURE_DOES_NOT_MATCH during HeadObject operation: No response body."
            ),
            PermissionError,
            "S3: the credentials are refused (SIGNATURE_DOES_NOT_MATCH in HeadObject); set AWS_",
        ),
        (
            "AWS Error ACCESS_DENIED during ListObjectsV2 operation: Access Denied",
            PermissionError,
            "S3: access is denied (ACCESS_DENIED in ListObjectsV2); the owner of the credentials",
        ),
        (
            "AWS Error NO_SUCH_BUCKET during GetObject operation: The bucket does not exist",
            FileNotFoundError,
            "S3: no such bucket; create it, or check its name and endpoint_override",
        ),
        (
            "AWS Error UNKNOWN (HTTP status 404) during HeadObject operation: No response body.",
            FileNotFoundError,
            "S3: no such object",
        ),
        (
            (
                "AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 7, Couldn't "
                "connect to server"
            ),
            ConnectionError,
            "S3: 7, Couldn't connect to server; check endpoint_override of the URL",
        ),
        (
            "Error performing GET http://h/b in 30s - HTTP error operation timed out",
            ConnectionError,
            "S3: Error performing GET http://h/b in 30s",
        ),
        (
            "something else, with signature=hidden and password: hidden\n\x1b[31m in two lines",
            OSError,
            "S3: something else, with signature=*** and password: *** in two lines",
        ),
    ],
)
def test_an_error_says_what_to_set(text, kind, message):
    error = convert_error(OSError(text), URL)
    assert type(error) is kind
    assert error.strerror.startswith(message)
    assert error.filename == SHOWN
    assert "hidden" not in str(error) and "\n" not in str(error)
    assert convert_error(error, URL) is error


AZURE = "az://bucket/a.log?account_key=hidden"
GOOGLE = "gs://bucket/a.log"


@pytest.mark.parametrize(
    ("url", "text", "kind", "message"),
    [
        (
            AZURE,
            (
                "GetProperties failed. Azure Error: [AuthorizationFailure] 403 Server failed to "
                "authenticate the request. Make sure the value of the header is formed correctly."
            ),
            PermissionError,
            "Azure: the credentials are refused (AuthorizationFailure); set AZURE_STORAGE_ACCOUNT",
        ),
        (
            AZURE,
            (
                "failed: N5Azure4Core11Credentials23AuthenticationExceptionE: Failed to get token "
                "from DefaultAzureCredential."
            ),
            PermissionError,
            "Azure: there are no valid credentials; set AZURE_STORAGE_ACCOUNT",
        ),
        (
            AZURE,
            "failed: AuthenticationExceptionE: AADSTS7000215: invalid client secret",
            PermissionError,
            "Azure: the credentials are refused; set AZURE_STORAGE_ACCOUNT",
        ),
        (
            AZURE,
            "Azure Error: [] Fail to get a new connection for: http://h:9. Could not connect",
            ConnectionError,
            "Azure: Fail to get a new connection for: http://h:9. Could not connect; check the",
        ),
        (
            GOOGLE,
            (
                "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of "
                "Could not create a OAuth2 access token to authenticate the request."
            ),
            PermissionError,
            "Google Cloud Storage: there are no valid credentials; set GOOGLE_APPLICATION_CREDE",
        ),
        (
            GOOGLE,
            (
                "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of "
                "PerformWork() - CURL error [7]=Could not connect to server error_info={reason=}"
            ),
            ConnectionError,
            "Google Cloud Storage: Could not connect to server; check endpoint_override",
        ),
        (
            GOOGLE,
            "No such file or directory 'bucket/none'",
            FileNotFoundError,
            "Google Cloud Storage: no such object",
        ),
    ],
)
def test_errors_of_azure_and_google(url, text, kind, message):
    error = convert_error(OSError(text), url)
    assert type(error) is kind
    assert error.strerror.startswith(message)
    assert "hidden" not in str(error)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("abfss://c@account.dfs.core.windows.net/a", "Azure"),
        ("gs://b/a", "Google Cloud Storage"),
        ("hdfs://node/a", "HDFS"),
        ("other://b/a", "other"),
    ],
)
def test_an_error_names_its_store(url, name):
    assert convert_error(FileNotFoundError(2, "gone"), url).strerror == f"{name}: no such object"
    assert make_no_bucket_error(url).strerror.startswith(f"{name}: no such bucket")
