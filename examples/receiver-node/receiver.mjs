// A receiver of fanout's webhooks, as one may write it in Node: verify, store once,
// answer, and let no late event overwrite a newer one.
import { createPublicKey, verify } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { link, open, unlink } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const { WEBHOOK_SECRET: secret, DATA: data = "receiver-data", LISTEN: listen = "127.0.0.1:8092" } = process.env;

// What a whsk_ secret signs is verified by its public key, whpk_...: v1a, which the
// library does not know. It is Ed25519 over the same text.
class PublicKey {
  constructor(text) {
    const x = Buffer.from(text, "base64"); // 32 bytes, or createPublicKey throws
    this.key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: x.toString("base64url") }, format: "jwk" });
  }
  verify(body, { "webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signatures = "" }) {
    if (!(Math.abs(Date.now() / 1000 - Number(stamp)) <= 5 * 60)) throw new WebhookVerificationError("its timestamp is not of now");
    const signed = Buffer.concat([Buffer.from(`${id}.${stamp}.`), body]);
    const ours = signatures.split(" ").filter((one) => one.startsWith("v1a,"));
    if (!ours.some((one) => verify(null, signed, this.key, Buffer.from(one.slice(4), "base64")))) {
      throw new WebhookVerificationError("no signature is by this key");
    }
  }
}

let webhook;
try {
  const [, kind, text] = /^(whsec_|whpk_)(.+)$/.exec(secret); // a whsk_ signs: it is no receiver's
  webhook = kind === "whpk_" ? new PublicKey(text) : new Webhook(secret);
} catch {
  // Without the error: what is malformed may be a secret all the same.
  console.error("WEBHOOK_SECRET must be the subscriber's secret, whsec_..., or the public key of a whsk_ one, whpk_...");
  process.exit(2);
}
const maxBody = 1 << 20; // above the longest body that fanout sends

// One file a delivery, named by its webhook-id: a name can be given once, and that is
// what makes twice once, also after a crash. (A database would have a unique column.)
mkdirSync(data, { recursive: true });
const shipments = new Map();
let deliveries = 0;

// Moves a shipment on, unless what is known of it is newer. Times are compared as
// times: their texts have offsets.
function apply({ type, timestamp, shipment_id: id }) {
  deliveries++;
  if (type === "fanout.test") return; // of no shipment
  const at = Date.parse(timestamp);
  if (!(at <= shipments.get(id)?.at)) shipments.set(id, { status: type, at });
}

for (const name of readdirSync(data)) {
  if (name.startsWith(".")) rmSync(join(data, name)); // a crash left it half written
  else apply(JSON.parse(readFileSync(join(data, name), "utf8")));
}

// True if it is new. On disk, name and all, when it returns, whoever wrote it.
async function store(id, body) {
  const temporary = join(data, `.${id}.${process.hrtime.bigint()}`);
  const file = await open(temporary, "wx");
  try {
    await file.writeFile(body);
    await file.sync();
  } finally {
    await file.close();
  }
  let fresh = true;
  try {
    await link(temporary, join(data, id));
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    fresh = false;
  } finally {
    await unlink(temporary);
  }
  const directory = await open(data);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
  return fresh;
}

// The raw body: any parsing and writing anew would change what was signed.
async function read(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    if ((size += chunk.length) > maxBody) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function hook(request, response) {
  const body = await read(request);
  if (body === undefined) return response.writeHead(413, { connection: "close" }).end("too large");
  try {
    // Checks the signature, and that the timestamp is within five minutes.
    webhook.verify(body, request.headers, { jsonParse: false });
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    // 401 is a refusal that speaks of us: if our secret is wrong, fanout's breaker opens
    // and most deliveries wait; with the policy's "classify": {"401": "retry"} none is
    // dead of it at once. After a 400 each of them would be.
    return response.writeHead(401).end("not verified");
  }
  const id = request.headers["webhook-id"];
  let event;
  try {
    event = JSON.parse(body);
  } catch {}
  if (typeof event?.shipment_id !== "string" || Number.isNaN(Date.parse(event.timestamp)) || !/^\w{1,64}$/.test(id)) {
    return response.writeHead(400).end("not an event"); // nor will it be the next time
  }
  try {
    if (await store(id, body)) apply(event);
  } catch (error) {
    console.error(`cannot store ${id}: ${error.message}`);
    return response.writeHead(503, { "retry-after": "5" }).end("try again");
  }
  response.writeHead(204).end(); // the work begins now, from the files
}

const server = createServer((request, response) => {
  if (request.url === "/shipments" && request.method === "GET") {
    const status = Object.fromEntries([...shipments].map(([id, s]) => [id, s.status]));
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ deliveries, shipments: status }));
  } else if (request.url !== "/hook") response.writeHead(404).end();
  else if (request.method !== "POST") response.writeHead(405, { allow: "POST" }).end();
  else hook(request, response).catch(() => response.destroy()); // the sender went away, or a bug of ours
});
server.requestTimeout = 10_000;
const [host, port] = listen.split(":");
server.listen(Number(port), host, () => console.log(`http://${host}:${server.address().port}/hook`));
