// LangGraph.js through LangChain's createAgent. Modes: chat, responses; stream.
import { ChatOpenAI } from '@langchain/openai';
import { createAgent, tool } from 'langchain';
import { z } from 'zod';

import { MAX_TOKENS, SYSTEM, TEMPERATURE, TOOLS, main } from './desk.mjs';

async function answer(run) {
  const model = new ChatOpenAI({
    model: run.model,
    apiKey: run.api_key,
    configuration: { baseURL: run.base_url },
    temperature: TEMPERATURE,
    maxTokens: MAX_TOKENS,
    useResponsesApi: run.modes.has('responses'),
  });
  const tools = Object.entries(TOOLS).map(([name, { argument, description }]) =>
    tool(async (given) => run.call(name, given), { name, description, schema: z.object({ [argument]: z.string() }) }),
  );
  const agent = createAgent({ model, tools, systemPrompt: SYSTEM });
  const asked = { messages: [{ role: 'user', content: run.question }] };
  if (!run.modes.has('stream')) return (await agent.invoke(asked)).messages.at(-1).text;
  let said = '';
  for await (const [part, { langgraph_step: step }] of await agent.stream(asked, { streamMode: 'messages' })) {
    if (part.type === 'ai') said = said.step === step ? { step, text: said.text + part.text } : { step, text: part.text };
  }
  return said.text;
}

await main(answer);
