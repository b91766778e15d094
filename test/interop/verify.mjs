// Reads captured requests, one JSON object a line, and verifies each by the
// official library, as a receiver in Node would. A request that was tampered with
// says so in `tampered`, and has to be refused.
import { createInterface } from "node:readline";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

let verified = 0;
let refused = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { name, secret, headers, body, tampered } = JSON.parse(line);
  try {
    new Webhook(secret).verify(Buffer.from(body, "base64"), headers, { jsonParse: false });
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    if (!tampered) {
      console.error(`${name}: ${error.message}`);
      process.exit(1);
    }
    refused++;
    continue;
  }
  if (tampered) {
    console.error(`${name}: verified although it was tampered with`);
    process.exit(1);
  }
  verified++;
}
console.log(`verified=${verified} refused=${refused}`);
